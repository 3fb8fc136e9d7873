//! A model or an ensemble under judgement.

use std::path::Path;

use anyhow::Result;
use zeitnot_encoding::{Batch, LegalMoves, Situation, vocabulary};
use zeitnot_inference::{Ensemble, InferenceError, Runtime, Session, SessionOptions, ensemble::ChosenBy};

/// A model, or several of which the mover's rating chooses as it does in the server.
pub struct Contender {
    sessions: Vec<Session>,
    ensemble: Option<Ensemble>,
}

impl Contender {
    /// Opens an ONNX file, or the members of an ensemble's `.toml` file.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or served, naming it.
    pub fn open(runtime: &Runtime, path: &Path, how: SessionOptions) -> Result<Self, InferenceError> {
        let ensemble = Ensemble::is_named_by(path).then(|| Ensemble::read(path)).transpose()?;
        let members = ensemble.iter().flat_map(|ensemble| &ensemble.members).map(|member| member.file.as_path());
        let alone = ensemble.is_none().then_some(path);
        let sessions = members.chain(alone).map(|file| Session::open(runtime, file, how)).collect::<Result<_, _>>()?;
        Ok(Contender { sessions, ensemble })
    }

    /// The name it is served by.
    pub fn name(&self) -> &str {
        let model = || self.sessions.first().map_or("", |session| session.metadata().name.as_str());
        self.ensemble.as_ref().map_or_else(model, |ensemble| ensemble.name.as_str())
    }

    /// The encoding of its situations; the first member's of an ensemble.
    pub fn encoding(&self) -> &'static str {
        self.sessions.first().map_or("", |session| session.encoding().name())
    }

    /// The probabilities of each situation's legal moves, in the order of the moves.
    ///
    /// # Errors
    ///
    /// When a model cannot be run or answers with logits that are no numbers.
    pub fn probabilities(&mut self, situations: &[Situation], legal: &[LegalMoves]) -> Result<Vec<Vec<f32>>> {
        let mut mixed = legal.iter().map(|legal| vec![0.0; legal.indices().len()]).collect::<Vec<_>>();
        for (member, session) in self.sessions.iter_mut().enumerate() {
            let ensemble = self.ensemble.as_ref();
            let asked = situations.iter().zip(legal).zip(&mut mixed).filter_map(|((situation, legal), mixed)| {
                Some((situation, legal, mixed, weight(ensemble, member, situation)?))
            });
            let asked = asked.collect::<Vec<_>>();
            if asked.is_empty() {
                continue;
            }
            let batch = Batch::of(session.encoding(), asked.iter().map(|asked| asked.0));
            let policy = session.run(&batch)?.policy;
            let name = &session.metadata().name;
            anyhow::ensure!(policy.iter().all(|x| x.is_finite()), "{name} answers with logits that are no numbers");
            for ((_, legal, mixed, weight), policy) in asked.into_iter().zip(policy.chunks(vocabulary::SIZE)) {
                let own = legal.probabilities(policy);
                mixed.iter_mut().zip(own).for_each(|(sum, own)| *sum += weight * own);
            }
        }
        Ok(mixed)
    }
}

/// A member's part in the answer to a situation; none where it has no part.
fn weight(ensemble: Option<&Ensemble>, member: usize, situation: &Situation) -> Option<f32> {
    let Some(ensemble) = ensemble else { return Some(1.0) };
    let shares = ensemble.choose(ChosenBy::of(&situation.conditions).rating);
    shares.into_iter().find(|share| share.member == member).map(|share| share.weight)
}
