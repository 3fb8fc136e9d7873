//! The input pipeline: shuffled decisions of all games as batches, made by threads of its own.
//!
//! The order is a function of the seed alone, so a run continued at a step sees the batches it would have seen.

use std::{sync::Arc, thread};

use anyhow::{Result, bail};
use crossbeam_channel::{Receiver, bounded};
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use shakmaty::Position;
use zeitnot_encoding::{OtterBatch, Situation, Targets, targets, vocabulary};

use crate::record::{Decision, GameRecord};

/// Batches each thread keeps ready.
const READY: usize = 4;

/// One training batch of B decisions.
#[derive(Debug, Default, PartialEq)]
pub struct Batch {
    /// Inputs.
    pub inputs: OtterBatch,
    /// i64 `[B]`: vocabulary index of the move played.
    pub policy: Vec<i64>,
    /// bool `[B, 4208]`: legal moves.
    pub legal: Vec<bool>,
    /// f32 `[B]`: 1 the mover won, 0 draw, -1 lost.
    pub value: Vec<f32>,
    /// f32 `[B, 141]`.
    pub auxiliary: Vec<f32>,
}

/// All decisions of the games, and the order to learn them in.
pub struct Plan {
    games: Arc<Vec<GameRecord>>,
    decisions: Vec<(u32, u16)>,
    seed: u64,
    batch_size: usize,
    hide: Hide,
}

/// Shares of decisions whose history or clock the network is not shown, so that it learns what to do without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hide {
    /// Share without recent moves.
    pub history: f64,
    /// Share without time control and clock.
    pub time: f64,
}

impl Hide {
    /// Hides by a random number that depends on the seed and the decision's place alone.
    fn apply(self, situation: &mut Situation, seed: u64, place: u64) {
        let mut random = ChaCha8Rng::seed_from_u64(seed ^ place.wrapping_mul(0xd134_2543_de82_ef95));
        if random.random_bool(self.history) {
            situation.history.truncate(0);
        }
        if random.random_bool(self.time) {
            situation.conditions.time_control = None;
            situation.conditions.mover_clock = None;
        }
    }
}

impl Plan {
    /// Every decision of every game is in the plan, once an epoch.
    ///
    /// # Errors
    ///
    /// When there are fewer decisions than one batch needs.
    pub fn new(games: Vec<GameRecord>, seed: u64, batch_size: usize, hide: Hide) -> Result<Self> {
        let mut decisions = Vec::new();
        for (number, game) in (0u32..).zip(&games) {
            let plies = u16::try_from(game.moves.len()).unwrap_or(u16::MAX);
            decisions.extend((0..plies).map(|ply| (number, ply)));
        }
        if decisions.len() < batch_size {
            bail!("the shards hold {} decisions, fewer than one batch of {batch_size}", decisions.len());
        }
        Ok(Plan { games: Arc::new(games), decisions, seed, batch_size, hide })
    }

    /// Number of decisions of one epoch.
    pub fn decisions(&self) -> usize {
        self.decisions.len()
    }

    /// Batches from `first_step` up to `steps`, made by `threads` threads. They stop when the feed is dropped.
    pub fn start(self, first_step: u64, steps: u64, threads: usize) -> Feed {
        let plan = Arc::new(self);
        let threads = threads.max(1) as u64;
        let receivers = (0..threads)
            .map(|thread| {
                let (sender, receiver) = bounded(READY);
                let plan = Arc::clone(&plan);
                thread::spawn(move || {
                    let mut epochs = Epochs::new(&plan);
                    for step in (first_step..steps).filter(|step| step % threads == thread) {
                        // The feed ends early at a game that cannot be replayed, or when nobody wants it any more.
                        let Some(batch) = plan.batch(&mut epochs, step) else { return };
                        if sender.send(batch).is_err() {
                            return;
                        }
                    }
                });
                receiver
            })
            .collect();
        Feed { receivers, step: first_step }
    }

    fn batch(&self, epochs: &mut Epochs<'_>, step: u64) -> Option<Batch> {
        let mut batch = Batch { inputs: OtterBatch::with_capacity(self.batch_size), ..Batch::default() };
        let first = step * self.batch_size as u64;
        for place in first..first + self.batch_size as u64 {
            let (game, ply) = epochs.at(place);
            let mut decision = self.games.get(game as usize)?.decision(usize::from(ply))?;
            self.hide.apply(&mut decision.situation, self.seed, place);
            push(&mut batch, self.games.get(game as usize)?, &decision)?;
        }
        Some(batch)
    }
}

/// Appends one decision with its targets.
fn push(batch: &mut Batch, game: &GameRecord, decision: &Decision) -> Option<()> {
    let position = &decision.situation.position;
    let targets = Targets::of(position, decision.played)?;
    batch.inputs.push(&decision.situation);
    batch.policy.push(i64::from(targets.policy));
    let start = batch.legal.len();
    batch.legal.resize(start + vocabulary::SIZE, false);
    for &index in &targets.legal {
        if let Some(cell) = batch.legal.get_mut(start + usize::from(index)) {
            *cell = true;
        }
    }
    batch.value.push(targets::value(game.winner, position.turn()));
    batch.auxiliary.extend(targets.auxiliary_row());
    Some(())
}

/// The permutation of the epoch being read.
struct Epochs<'a> {
    plan: &'a Plan,
    epoch: Option<u64>,
    order: Vec<u32>,
}

impl<'a> Epochs<'a> {
    fn new(plan: &'a Plan) -> Self {
        Epochs { plan, epoch: None, order: (0..plan.decisions.len() as u32).collect() }
    }

    /// The decision at a place in the endless sequence of epochs.
    fn at(&mut self, place: u64) -> (u32, u16) {
        let size = self.plan.decisions.len() as u64;
        let epoch = place / size;
        if self.epoch != Some(epoch) {
            self.epoch = Some(epoch);
            self.order.sort_unstable();
            let seed = self.plan.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(epoch);
            self.order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        }
        let decision = self.order.get((place % size) as usize).and_then(|&i| self.plan.decisions.get(i as usize));
        decision.copied().unwrap_or_default()
    }
}

/// Batches in order.
pub struct Feed {
    receivers: Vec<Receiver<Batch>>,
    step: u64,
}

impl Iterator for Feed {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        let turn = (self.step % self.receivers.len() as u64) as usize;
        self.step += 1;
        self.receivers.get(turn)?.recv().ok()
    }
}
