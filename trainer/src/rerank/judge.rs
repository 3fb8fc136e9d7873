//! Runs re-rankers over annotated decisions, through the code that serves them.

use std::{collections::HashMap, path::Path};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use zeitnot_encoding::{
    evidence::{self, Score},
    rerank::{CANDIDATES, RerankBatch, STYLE, Style},
};
use zeitnot_inference::{Reranker, Runtime};

use super::known::Known;

/// Rows in one run.
const BATCH: usize = 128;
/// Probability below which a move counts as this improbable.
const LEAST: f64 = 1e-9;
/// Centipawns from which the prior's choice counts as refuted; scores beyond 1000 count as 1000.
pub const REFUTED: u32 = 100;

/// One decision under prior and re-rankers, with the engine's evidence at one depth.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Number of the player who decided.
    pub player: u32,
    /// NLL of the move played under the prior, in nats.
    pub prior: f64,
    /// Whether it was the prior's first.
    pub prior_top: bool,
    /// For each re-ranker: NLL, whether it was the first, and total mass of the moves.
    pub reranked: Vec<Verdict>,
    /// Place of the move played among the candidates.
    pub candidate: Option<usize>,
    /// Whether the engine's choice was played although the prior's was another, which the engine refutes.
    pub refutation: bool,
    /// Nodes of the search; 0 without one.
    pub nodes: u64,
}

/// What a re-ranker made of a decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// NLL of the move played, in nats.
    pub nll: f64,
    /// Whether it was the most probable.
    pub top: bool,
    /// Sum of all legal moves' probabilities.
    pub mass: f64,
    /// Largest difference from the prior's probability among the moves that are no candidates, relative to all of these.
    pub moved: f64,
}

/// Styles by player: `SITE-NAME` as `train-reranker` writes it, or the name alone as `fit-style` does.
#[derive(Debug, Default)]
pub struct Styles(HashMap<String, Style>);

impl Styles {
    /// The styles of a folder of a re-ranker.
    ///
    /// # Errors
    ///
    /// When there is none, or a file is damaged or belongs to another re-ranker, naming it.
    pub fn read(folder: &Path, reranker: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct File {
            reranker: String,
            player: String,
            values: Vec<f32>,
        }
        let mut styles = HashMap::new();
        for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let shown = || path.display().to_string();
            let file: File =
                serde_json::from_str(&std::fs::read_to_string(&path).with_context(shown)?).with_context(shown)?;
            let Ok(values) = <[f32; STYLE]>::try_from(file.values) else {
                bail!("{}: a style has {STYLE} values", shown())
            };
            if file.reranker != reranker {
                bail!("{}: the style belongs to {}, not to {reranker}", shown(), file.reranker);
            }
            if styles.insert(file.player, values).is_some() {
                bail!("{}: another file has a style of the same player", shown());
            }
        }
        if styles.is_empty() {
            bail!("{} holds no style", folder.display());
        }
        Ok(Styles(styles))
    }

    /// A player's style.
    pub fn of(&self, (site, name): &(String, String)) -> Option<&Style> {
        self.0.get(&format!("{site}-{name}")).or_else(|| self.0.get(name))
    }
}

/// A re-ranker to judge.
pub struct Contestant {
    /// Its name in reports.
    pub name: String,
    /// Its session.
    pub session: Reranker,
    /// Whether it is shown the evidence.
    pub engine: bool,
    /// Styles to apply.
    pub styles: Styles,
    /// Which of the contestants is the same without styles.
    pub generic: Option<usize>,
}

impl Contestant {
    /// Opens a re-ranker's file.
    ///
    /// # Errors
    ///
    /// When it cannot be run.
    pub fn open(name: &str, path: &Path) -> Result<Self> {
        let session = Reranker::open(&Runtime::load(None)?, path, 2)?;
        Ok(Contestant { name: name.to_owned(), session, engine: true, styles: Styles::default(), generic: None })
    }
}

/// Judges all contestants on all decisions, with the evidence of one depth.
///
/// # Errors
///
/// When a re-ranker cannot be run.
pub fn judge(contestants: &mut [Contestant], known: &[Known], depth: u8) -> Result<Vec<Judged>> {
    let mut numbers: HashMap<&(String, String), u32> = HashMap::new();
    let mut judged = Vec::with_capacity(known.len());
    for known in known {
        let next = numbers.len() as u32;
        let player = *numbers.entry(&known.player).or_insert(next);
        judged.push(of_prior(known, player, depth));
    }
    for contestant in contestants {
        for (known, judged) in known.chunks(BATCH).zip(judged.chunks_mut(BATCH)) {
            let mut batch = RerankBatch::default();
            for known in known {
                let scores = if contestant.engine { known.scores(depth) } else { &[] };
                batch.push(&known.row(contestant.styles.of(&known.player), scores));
            }
            let residuals = contestant.session.run(&batch)?;
            if residuals.iter().any(|residual| !residual.is_finite()) {
                bail!("{} answers with residuals that are no numbers", contestant.name);
            }
            for ((known, judged), residuals) in known.iter().zip(judged).zip(residuals.chunks(CANDIDATES)) {
                judged.reranked.push(verdict(known, residuals));
            }
        }
    }
    Ok(judged)
}

fn of_prior(known: &Known, player: u32, depth: u8) -> Judged {
    let probabilities = known.probabilities(&[]);
    Judged {
        player,
        prior: nll(&probabilities, known.played),
        prior_top: known.candidates.places.first() == Some(&known.played),
        reranked: Vec::new(),
        candidate: known.candidates.places.iter().position(|&place| place == known.played),
        refutation: refutation(known, known.scores(depth)),
        nodes: known.evidence.at(depth).map_or(0, |search| search.nodes),
    }
}

fn verdict(known: &Known, residuals: &[f32]) -> Verdict {
    let before = known.probabilities(&[]);
    let after = known.probabilities(residuals);
    let own = after.get(known.played).copied().unwrap_or_default();
    let rest = |probabilities: &[f32]| {
        let places = (0..probabilities.len()).filter(|place| !known.candidates.places.contains(place));
        places.filter_map(|place| probabilities.get(place).map(|p| f64::from(*p))).collect::<Vec<_>>()
    };
    let (rest_before, rest_after) = (rest(&before), rest(&after));
    let [sum_before, sum_after] = [&rest_before, &rest_after].map(|rest| rest.iter().sum::<f64>().max(1e-30));
    let moved =
        rest_before.iter().zip(&rest_after).map(|(before, after)| (before / sum_before - after / sum_after).abs());
    Verdict {
        nll: nll(&after, known.played),
        top: after.iter().all(|&other| other <= own),
        mass: after.iter().map(|&p| f64::from(p)).sum(),
        moved: moved.fold(0.0, f64::max),
    }
}

fn nll(probabilities: &[f32], played: usize) -> f64 {
    -f64::from(probabilities.get(played).copied().unwrap_or_default()).max(LEAST).ln()
}

/// Whether the engine's choice was played, the prior's was another, and the engine finds that one worse by enough.
fn refutation(known: &Known, scores: &[Option<Score>]) -> bool {
    let Some(best) = evidence::ranks(scores).iter().position(|rank| *rank == Some(1)) else { return false };
    let refuted = evidence::losses(scores).first().copied().flatten().is_some_and(|loss| loss >= REFUTED);
    best > 0 && refuted && known.candidates.places.get(best) == Some(&known.played)
}
