//! The input pipeline: shuffled decisions of all games as batches, made by threads of its own.
//!
//! # Layout
//!
//! - [`plan`]: which decisions, in which order.
//! - [`hide`]: conditions the network is not shown, so that it learns what to do without.
//! - [`teacher`]: networks whose probabilities are learnt too.

pub mod hide;
pub mod plan;
pub mod teacher;

use std::{sync::Arc, thread};

use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, bounded};
use shakmaty::Position;
use zeitnot_encoding::{Encoding, Targets, targets, think_time, vocabulary};

pub use self::{
    hide::Hide,
    plan::{Plan, Selection},
    teacher::{TeacherFile, Teachers},
};
use crate::record::{Decision, GameRecord};

/// Batches each thread keeps ready.
const READY: usize = 4;

/// Target of a decision whose think time is unknown; the loss leaves it out.
pub const UNKNOWN: i64 = -100;

/// One training batch of B decisions.
#[derive(Debug, PartialEq)]
pub struct Batch {
    /// Inputs.
    pub inputs: zeitnot_encoding::Batch,
    /// i64 `[B]`: vocabulary index of the move played.
    pub policy: Vec<i64>,
    /// bool `[B, 4208]`: legal moves.
    pub legal: Vec<bool>,
    /// f32 `[B]`: 1 the mover won, 0 draw, -1 lost.
    pub value: Vec<f32>,
    /// i64 `[B]`: bin of the think time, or [`UNKNOWN`].
    pub think_time: Vec<i64>,
    /// f32 `[B, 141]`.
    pub auxiliary: Vec<f32>,
    /// f32 `[B, 4208]`: a teacher's probabilities; empty without one.
    pub teacher: Vec<f32>,
}

/// How decisions become batches.
#[derive(Clone, Copy, Debug)]
pub struct Feeding {
    /// How situations are encoded.
    pub encoding: &'static dyn Encoding,
    /// Shares of decisions with hidden conditions.
    pub hide: Hide,
    /// Shows the clock after the move instead of before it: what the study of the clock leak measures.
    pub leak_clock: bool,
}

impl Batch {
    fn new(encoding: &'static dyn Encoding, rows: usize) -> Self {
        Batch {
            inputs: zeitnot_encoding::Batch::new(encoding, rows),
            policy: Vec::with_capacity(rows),
            legal: Vec::with_capacity(rows * vocabulary::SIZE),
            value: Vec::with_capacity(rows),
            think_time: Vec::with_capacity(rows),
            auxiliary: Vec::with_capacity(rows * targets::AUXILIARY),
            teacher: Vec::new(),
        }
    }

    /// Appends one decision with its targets.
    fn push(&mut self, game: &GameRecord, decision: &Decision) -> Option<()> {
        let position = &decision.situation.position;
        let targets = Targets::of(position, decision.played)?;
        self.inputs.push(&decision.situation);
        self.policy.push(i64::from(targets.policy));
        let start = self.legal.len();
        self.legal.resize(start + vocabulary::SIZE, false);
        for &index in &targets.legal {
            if let Some(cell) = self.legal.get_mut(start + usize::from(index)) {
                *cell = true;
            }
        }
        self.value.push(targets::value(game.winner, position.turn()));
        self.think_time.push(game.think_time(decision.ply).map_or(UNKNOWN, |time| think_time::bin(time) as i64));
        self.auxiliary.extend(targets.auxiliary_row());
        Some(())
    }
}

impl Feeding {
    fn batch(&self, plan: &Plan, teachers: &mut Teachers, step: u64) -> Result<Batch> {
        let mut batch = Batch::new(self.encoding, plan.batch_size());
        let mut situations = Vec::new();
        for (place, (number, ply)) in (0..).zip(plan.step(step)) {
            let game = plan.game(number).context("the plan names a game that is not there")?;
            let replay = || format!("game {} of the shards cannot be replayed to ply {ply}", game.id);
            let mut decision = game.decision(usize::from(ply)).with_context(replay)?;
            if !teachers.is_empty() {
                situations.push(decision.situation.clone());
            }
            if self.leak_clock {
                game.leak_clock(&mut decision);
            }
            self.hide.apply(&mut decision.situation, plan.seed(), step * plan.batch_size() as u64 + place);
            batch.push(game, &decision).with_context(replay)?;
        }
        batch.teacher = teachers.probabilities(&situations)?;
        Ok(batch)
    }
}

/// Batches in order.
pub struct Feed {
    receivers: Vec<Receiver<Result<Batch>>>,
    step: u64,
}

impl Feed {
    /// Batches from `first_step` up to the plan's last, made by `threads` threads, each with teachers of its own. They
    /// stop when the feed is dropped, or after an error.
    ///
    /// # Errors
    ///
    /// When a teacher cannot be opened.
    pub fn start(
        plan: Plan,
        feeding: Feeding,
        teachers: &[TeacherFile],
        first_step: u64,
        threads: usize,
    ) -> Result<Self> {
        let plan = Arc::new(plan);
        let threads = threads.max(1) as u64;
        let mut receivers = Vec::new();
        for thread in 0..threads {
            let (sender, receiver) = bounded(READY);
            let plan = Arc::clone(&plan);
            let mut teachers = Teachers::open(teachers)?;
            thread::spawn(move || {
                for step in (first_step..plan.steps()).filter(|step| step % threads == thread) {
                    let batch = feeding.batch(&plan, &mut teachers, step);
                    let failed = batch.is_err();
                    // Nobody wants the batch when the feed was dropped.
                    if sender.send(batch).is_err() || failed {
                        return;
                    }
                }
            });
            receivers.push(receiver);
        }
        Ok(Feed { receivers, step: first_step })
    }
}

impl Iterator for Feed {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        let turn = (self.step % self.receivers.len() as u64) as usize;
        self.step += 1;
        self.receivers.get(turn)?.recv().ok()
    }
}
