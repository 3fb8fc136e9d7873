//! Decisions with all that a re-ranker is told of them.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, bail};
use shakmaty::{Move, Position, Role};
use zeitnot_encoding::{
    Batch, Conditions, LegalMoves,
    decode::{gather, softmax},
    evidence::Score,
    rerank::{Candidates, Row, Style},
    vocabulary,
};
use zeitnot_inference::{Device, Metadata, Runtime, Session, SessionOptions};

use crate::{
    annotate::{
        manifest::{Manifest, Model},
        shard::{self as evidence, Evidence},
    },
    record::{Decision, GameRecord},
    shard,
};

/// Decisions in one run of the prior.
const BATCH: usize = 128;

/// A decision, what the prior answers and what the engine says.
#[derive(Clone, Debug)]
pub struct Known {
    /// Site and name of the mover.
    pub player: (String, String),
    /// Index of the move, from 0.
    pub ply: usize,
    /// Ratings and clocks.
    pub conditions: Conditions,
    /// Recent moves that the prior was shown.
    pub history: usize,
    /// Vocabulary indices of the legal moves.
    pub indices: Vec<u16>,
    /// The prior's logits of the legal moves.
    pub logits: Vec<f32>,
    /// The prior's pooled hidden state.
    pub pooled: Vec<f32>,
    /// The moves to re-rank.
    pub candidates: Candidates,
    /// Place of the move played among the legal moves.
    pub played: usize,
    /// What kind of move was played.
    pub class: MoveClass,
    /// What the engine says; no search without an engine.
    pub evidence: Evidence,
}

/// Kinds of moves, of which the first that fits is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveClass {
    /// Takes a piece or pawn, or promotes.
    Capture,
    /// Gives check.
    Check,
    /// Moves a pawn.
    Pawn,
    /// Any other.
    Quiet,
}

impl MoveClass {
    /// Names in reports, in order.
    pub const NAMES: [&str; 4] = ["capture or promotion", "check", "pawn move", "other quiet move"];

    fn of(decision: &Decision) -> Self {
        let mv: Move = decision.played;
        let after = decision.situation.position.clone().play(mv);
        match mv {
            _ if mv.is_capture() || mv.is_promotion() => MoveClass::Capture,
            _ if after.is_ok_and(|position| position.is_check()) => MoveClass::Check,
            _ if mv.role() == Role::Pawn => MoveClass::Pawn,
            _ => MoveClass::Quiet,
        }
    }
}

impl Known {
    /// The scores of a depth, in the candidates' order; none when there is no such search.
    pub fn scores(&self, depth: u8) -> &[Option<Score>] {
        self.evidence.at(depth).map_or(&[], |search| &search.scores)
    }

    /// What the re-ranker is told, with these scores.
    pub fn row<'a>(&'a self, style: Option<&'a Style>, scores: &'a [Option<Score>]) -> Row<'a> {
        Row {
            indices: &self.indices,
            logits: &self.logits,
            pooled: &self.pooled,
            time_control: self.conditions.time_control,
            style,
            candidates: &self.candidates,
            scores,
        }
    }

    /// Probabilities of the legal moves under the prior, or with residuals added.
    pub fn probabilities(&self, residuals: &[f32]) -> Vec<f32> {
        let mut logits = self.logits.clone();
        self.candidates.apply(&mut logits, residuals);
        softmax(logits.into_iter())
    }
}

/// Runs a prior over decisions.
pub struct Prior {
    session: Session,
    model: Model,
}

impl Prior {
    /// Opens the prior's file on the CPU.
    ///
    /// # Errors
    ///
    /// When it cannot be served.
    pub fn open(path: &Path) -> Result<Self> {
        let options = SessionOptions { device: Device::Cpu, threads: 2 };
        let session = Session::open(&Runtime::load(None)?, path, options)?;
        let model = Model::of(path, session.metadata())?;
        Ok(Prior { session, model })
    }

    /// What the prior says of itself.
    pub fn metadata(&self) -> &Metadata {
        self.session.metadata()
    }

    /// Which file it is.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Joins evidence with its games, in the order of the evidence.
    ///
    /// # Errors
    ///
    /// When a game is missing, or the evidence was made with another prior.
    pub fn join(&mut self, data: &Path, folders: &[PathBuf]) -> Result<Vec<Known>> {
        let mut rows = Vec::new();
        for folder in folders {
            let made_with = Manifest::read(folder)?.model;
            if made_with != self.model {
                let (folder, theirs, ours) = (folder.display(), &made_with.name, &self.model.name);
                bail!(
                    "{folder}: the evidence was made with {theirs}, sha256 {}, not with {ours}, sha256 {}",
                    made_with.sha256,
                    self.model.sha256
                );
            }
            rows.extend(evidence::read_folder(folder)?);
        }
        let wanted =
            rows.iter().map(|row| (row.site.as_str(), row.game_id.as_str())).collect::<std::collections::HashSet<_>>();
        let mut games = HashMap::new();
        for path in shard::list(data)? {
            let found = shard::read(&path)?.into_iter();
            for game in found.filter(|game| wanted.contains(&(game.site.as_str(), game.id.as_str()))) {
                let key = (game.site.clone(), game.id.clone());
                if let Some(twin) = games.insert(key, game) {
                    bail!("{} has two games {} of {}", data.display(), twin.id, twin.site);
                }
            }
        }
        let mut decisions = Vec::new();
        for row in rows {
            let key = (row.site.clone(), row.game_id.clone());
            let game =
                games.get(&key).with_context(|| format!("{} lacks the game {} of {}", data.display(), key.1, key.0))?;
            let decision = game.decision(usize::from(row.ply));
            let decision = decision.with_context(|| format!("game {} cannot be replayed to ply {}", key.1, row.ply))?;
            decisions.push((game, decision, row));
        }
        let mut known = Vec::new();
        for chunk in decisions.chunks(BATCH) {
            known.extend(self.ask(chunk)?);
        }
        Ok(known)
    }

    /// Decisions of games, without evidence.
    ///
    /// # Errors
    ///
    /// When the prior cannot be run.
    pub fn without_evidence<'a>(
        &mut self,
        decisions: impl IntoIterator<Item = (&'a GameRecord, Decision)>,
    ) -> Result<Vec<Known>> {
        let rows = decisions.into_iter().map(|(game, decision)| (game, decision, Evidence::default()));
        let mut known = Vec::new();
        for chunk in rows.collect::<Vec<_>>().chunks(BATCH) {
            known.extend(self.ask(chunk)?);
        }
        Ok(known)
    }

    fn ask(&mut self, rows: &[(&GameRecord, Decision, Evidence)]) -> Result<Vec<Known>> {
        let batch = Batch::of(self.session.encoding(), rows.iter().map(|(_, decision, _)| &decision.situation));
        let answer = self.session.run(&batch)?;
        let mut known = Vec::new();
        for (row, (game, decision, evidence)) in rows.iter().enumerate() {
            let name = &self.session.metadata().name;
            let answer = answer.row(row).ok_or_else(|| anyhow!("{name} answers with numbers that are not finite"))?;
            let position = &decision.situation.position;
            let legal = LegalMoves::of(position);
            let logits = gather(legal.indices(), &answer.policy);
            let played = vocabulary::index_of(decision.played, position.turn());
            let played = legal.indices().iter().position(|&index| Some(index) == played);
            known.push(Known {
                player: (game.site.clone(), game.player(position.turn()).name.clone()),
                ply: decision.ply,
                conditions: decision.situation.conditions,
                history: self.session.encoding().told(&decision.situation).history,
                candidates: candidates(&legal, &logits, evidence)?,
                indices: legal.indices().to_vec(),
                logits,
                pooled: answer.pooled,
                played: played.context("a move played is not legal")?,
                class: MoveClass::of(decision),
                evidence: evidence.clone(),
            });
        }
        Ok(known)
    }
}

/// The prior's candidates, in the order in which the evidence has them: the prior's rounding differs a little between
/// batches, so that neighbours may have changed places since.
fn candidates(legal: &LegalMoves, logits: &[f32], evidence: &Evidence) -> Result<Candidates> {
    if evidence.candidates.is_empty() {
        return Ok(Candidates::of(legal.indices(), logits));
    }
    let named = Candidates::named(legal.indices(), logits, &evidence.candidates);
    named.with_context(|| {
        format!("the evidence of game {}, ply {}, has an illegal move", evidence.game_id, evidence.ply)
    })
}
