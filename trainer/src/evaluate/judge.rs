//! Runs models over decisions.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use anyhow::{Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use shakmaty::{Color, Position};
use zeitnot_encoding::{Conditions, LegalMoves, clock::TimeClass, otter::rating_bucket, vocabulary};
use zeitnot_inference::{InferenceError, Runtime, SessionOptions};

use super::{HeldOut, Options, contender::Contender, metrics::Score};
use crate::record::{Decision, GameRecord};

/// Decisions in one run.
const BATCH: usize = 128;
/// Games a thread takes at once.
const CHUNK: usize = 4;
/// Upper ends of the groups by share of the initial time left, except the last.
const CLOCK_SHARES: [f32; 5] = [0.05, 0.1, 0.25, 0.5, 0.75];

/// Names of these groups.
pub const CLOCKS: [&str; 6] = ["<5%", "5-10%", "10-25%", "25-50%", "50-75%", ">=75%"];

/// The group of a decision by the share of the initial time the mover has left; none when unknown.
pub fn clock_group(conditions: &Conditions) -> Option<usize> {
    let share = conditions.mover_clock? / conditions.time_control?.initial;
    share.is_finite().then(|| CLOCK_SHARES.iter().take_while(|&&end| share >= end).count())
}

/// The scores of all models on all decisions.
pub struct Verdicts {
    /// The models' names.
    pub models: Vec<String>,
    /// Every decision, in the order of the games.
    pub decisions: Vec<Judged>,
}

/// A decision and what each model made of it.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Number of the game.
    pub game: usize,
    /// Number of the player who decided.
    pub player: u32,
    /// Group by the mover's rating, 0 to 10.
    pub rating: usize,
    /// Group by ply, 0 to 2.
    pub phase: usize,
    /// Group by share of the clock left, 0 to 5; none when unknown.
    pub clock: Option<usize>,
    /// Group by time class, fastest first; none when unknown.
    pub time_class: Option<usize>,
    /// One score per history length and model, models of a length side by side.
    pub scores: Vec<Score>,
}

/// Judges every decision by every model at every history length.
///
/// # Errors
///
/// When a model cannot be opened or run.
pub fn judge(runtime: &Runtime, games: &[HeldOut], options: &Options) -> Result<Verdicts> {
    let threads = match options.threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let players = players(games);
    let bar = ProgressBar::new(games.iter().map(|game| game.plies as u64).sum());
    bar.set_style(ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} decisions left {eta}")?);
    let next = AtomicUsize::new(0);
    let work = || -> Result<Verdicts> {
        let mut contenders = open(runtime, options)?;
        let mut judged = Vec::new();
        loop {
            let first = next.fetch_add(CHUNK, Ordering::Relaxed);
            let chunk = games.iter().enumerate().skip(first).take(CHUNK).collect::<Vec<_>>();
            if chunk.is_empty() {
                break;
            }
            judge_games(&mut contenders, &chunk, &players, options, &mut judged, &bar)?;
        }
        let models = contenders.iter().map(|contender| contender.name().to_owned()).collect();
        Ok(Verdicts { models, decisions: judged })
    };
    let results = thread::scope(|scope| {
        let handles = (0..threads).map(|_| scope.spawn(work)).collect::<Vec<_>>();
        let join =
            |handle: thread::ScopedJoinHandle<'_, _>| handle.join().map_err(|_| anyhow!("a judging thread died"))?;
        handles.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    bar.finish_and_clear();

    let mut all = Verdicts { models: Vec::new(), decisions: Vec::new() };
    for verdicts in results {
        all.models = verdicts.models;
        all.decisions.extend(verdicts.decisions);
    }
    all.decisions.sort_by_key(|judged| judged.game);
    Ok(all)
}

/// Opens the models, each on one thread.
pub(crate) fn open(runtime: &Runtime, options: &Options) -> Result<Vec<Contender>, InferenceError> {
    let how = SessionOptions { device: options.device, threads: 1 };
    options.models.iter().map(|path| Contender::open(runtime, path, how)).collect()
}

/// Numbers for the players' names; sites use different names for the same person.
fn players(games: &[HeldOut]) -> HashMap<(String, String), u32> {
    let mut numbers = HashMap::new();
    for HeldOut { game, .. } in games {
        for color in [Color::White, Color::Black] {
            let next = numbers.len() as u32;
            numbers.entry((game.site.clone(), game.player(color).name.clone())).or_insert(next);
        }
    }
    numbers
}

fn judge_games(
    contenders: &mut [Contender],
    games: &[(usize, &HeldOut)],
    players: &HashMap<(String, String), u32>,
    options: &Options,
    judged: &mut Vec<Judged>,
    bar: &ProgressBar,
) -> Result<()> {
    let mut waiting = Vec::with_capacity(BATCH);
    for &(number, held_out) in games {
        for decision in held_out.game.decisions().take(held_out.plies) {
            let mover = held_out.game.player(decision.situation.position.turn());
            let player = players.get(&(held_out.game.site.clone(), mover.name.clone())).copied().unwrap_or_default();
            waiting.push(Waiting { number, game: &held_out.game, player, decision });
            if waiting.len() == BATCH {
                judge_batch(contenders, options, &mut waiting, judged)?;
                bar.inc(BATCH as u64);
            }
        }
    }
    bar.inc(waiting.len() as u64);
    judge_batch(contenders, options, &mut waiting, judged)
}

/// A decision to be judged.
struct Waiting<'a> {
    number: usize,
    game: &'a GameRecord,
    player: u32,
    decision: Decision,
}

fn judge_batch(
    contenders: &mut [Contender],
    options: &Options,
    waiting: &mut Vec<Waiting<'_>>,
    judged: &mut Vec<Judged>,
) -> Result<()> {
    if waiting.is_empty() {
        return Ok(());
    }
    let first = judged.len();
    let legal = waiting.iter().map(|own| LegalMoves::of(&own.decision.situation.position)).collect::<Vec<_>>();
    judged.extend(waiting.iter().map(|own| groups(own.number, own.player, &own.decision)));
    if options.leak_clock {
        waiting.iter_mut().for_each(|own| own.game.leak_clock(&mut own.decision));
    }
    for &length in &options.history_lengths {
        let situations = waiting.iter().map(|own| {
            let mut situation = own.decision.situation.clone();
            situation.forget(length);
            situation
        });
        let situations = situations.collect::<Vec<_>>();
        for contender in contenders.iter_mut() {
            let answers = contender.probabilities(&situations, &legal)?;
            let rows = judged.iter_mut().skip(first).zip(waiting.iter()).zip(&legal).zip(answers);
            for (((judged, Waiting { decision, .. }), legal), probabilities) in rows {
                let played = vocabulary::index_of(decision.played, decision.situation.position.turn());
                judged.scores.push(Score::of(legal, &probabilities, played));
            }
        }
    }
    waiting.clear();
    Ok(())
}

fn groups(game: usize, player: u32, decision: &Decision) -> Judged {
    let conditions = &decision.situation.conditions;
    Judged {
        game,
        player,
        rating: conditions.mover_rating.map_or(0, |rating| rating_bucket(rating) as usize),
        phase: match decision.ply {
            0..30 => 0,
            30..80 => 1,
            80.. => 2,
        },
        clock: clock_group(conditions),
        time_class: conditions
            .time_control
            .and_then(|control| TimeClass::ALL.iter().position(|&class| class == control.class())),
        scores: Vec::new(),
    }
}
