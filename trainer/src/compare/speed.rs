//! How many positions a model judges a second.

use std::time::{Duration, Instant};

use anyhow::Result;
use zeitnot_encoding::{LegalMoves, Situation};

use crate::evaluate::{HeldOut, contender::Contender};

/// Positions in one run.
pub const BATCH: usize = 64;
/// Different batches, so that ensembles are asked by players of many ratings.
const BATCHES: usize = 16;
/// Rounds, in each of which every model has its turn.
const ROUNDS: usize = 3;
/// How long a turn takes at least.
const TURN: Duration = Duration::from_millis(500);

/// Positions a second of each model on one thread, encoding and decoding included: the median of three rounds in which
/// they take turns.
///
/// # Errors
///
/// When a model cannot be run.
pub fn measure(contenders: &mut [Contender], games: &[HeldOut]) -> Result<Vec<f64>> {
    let batches = batches(games);
    let mut rounds = vec![Vec::new(); contenders.len()];
    for _ in 0..ROUNDS {
        for (contender, speeds) in contenders.iter_mut().zip(&mut rounds) {
            speeds.push(turn(contender, &batches)?);
        }
    }
    let median = |mut speeds: Vec<f64>| {
        speeds.sort_by(f64::total_cmp);
        speeds.get(ROUNDS / 2).copied().unwrap_or_default()
    };
    Ok(rounds.into_iter().map(median).collect())
}

fn turn(contender: &mut Contender, batches: &[(Vec<Situation>, Vec<LegalMoves>)]) -> Result<f64> {
    let start = Instant::now();
    let mut positions = 0;
    for (situations, legal) in batches.iter().cycle() {
        contender.probabilities(situations, legal)?;
        positions += situations.len();
        if start.elapsed() >= TURN {
            break;
        }
    }
    Ok(positions as f64 / start.elapsed().as_secs_f64())
}

/// Decisions from all over the games.
fn batches(games: &[HeldOut]) -> Vec<(Vec<Situation>, Vec<LegalMoves>)> {
    let step = games.len().div_ceil(BATCH).max(1);
    let chosen = games.iter().step_by(step);
    let situations = chosen.flat_map(|game| game.game.decisions().take(game.plies).map(|decision| decision.situation));
    let situations = situations.take(BATCH * BATCHES).collect::<Vec<_>>();
    let batch = |batch: &[Situation]| {
        (batch.to_vec(), batch.iter().map(|situation| LegalMoves::of(&situation.position)).collect())
    };
    situations.chunks(BATCH).map(batch).collect()
}
