//! Handshake and searches on one process.

use std::time::Duration;

use shakmaty::{Chess, EnPassantMode, Move, Position, fen::Fen};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::{
    EngineConfig, Evaluation, Limits, Score, Search, UciError,
    collect::{About, Collector},
    info::{self, Output},
    process::Process,
    reply::Stop,
};

/// Lines of one search beyond which the engine floods; Stockfish writes some hundred.
const MOST_LINES: usize = 100_000;
/// Lines beyond which an engine that was not asked floods.
const MOST_UNASKED: usize = 10_000;

/// How the engine calls itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) name: String,
    pub(crate) author: String,
}

/// An engine that has greeted.
#[derive(Debug)]
pub(crate) struct Engine {
    process: Process,
    names: Names,
    grace: Duration,
    silence: Duration,
    /// The MultiPV that is set.
    lines: usize,
    unasked: usize,
}

/// How a search's output ended.
enum End {
    /// By itself.
    Finished,
    /// It was stopped: for its deadline, or because nobody waits.
    Stopped,
    /// It was stopped and did not obey. The process is of no further use.
    Hung,
    /// It scores moves that are no candidates, and was stopped.
    Unlisted,
}

/// What came of a search, and whether the engine can go on.
pub(crate) struct Found {
    pub(crate) evaluation: Result<Evaluation, UciError>,
    pub(crate) usable: bool,
}

impl Engine {
    /// Starts a process and greets it.
    pub(crate) async fn start(config: &EngineConfig) -> Result<Self, UciError> {
        let mut process = Process::spawn(config)?;
        let greeting = timeout(config.handshake, greet(&mut process, config));
        let names = match greeting.await {
            Ok(Ok(names)) => names,
            Ok(Err(error)) => return Err(UciError::Handshake(error.to_string())),
            Err(_) => return Err(UciError::Handshake(format!("no answer within {:?}", config.handshake))),
        };
        let (grace, silence) = (config.grace, config.silence);
        Ok(Engine { process, names, grace, silence, lines: 1, unasked: 0 })
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Waits for output that nobody asked for. Ends with an error alone: the process has died or floods.
    pub(crate) async fn idle(&mut self) -> UciError {
        loop {
            match self.process.line().await {
                Ok(_) if self.unasked < MOST_UNASKED => self.unasked += 1,
                Ok(_) => return UciError::Flood,
                Err(error) => return error,
            }
        }
    }

    /// Scores all candidates by one search. `None` when the engine does not know `searchmoves`, or in the `probe` MultiPV.
    pub(crate) async fn together(&mut self, search: &Search, stop: &mut Stop<'_>, probe: bool) -> Option<Found> {
        let started = Instant::now();
        let mut collector = Collector::new(&search.position, &search.candidates);
        let command = go(&search.limits, Some(&search.names()));
        let end = match self.prepare(search.fresh, search.candidates.len(), stop.deadline).await {
            Ok(()) => self.run(&search.position, &command, stop, &mut collector, Some(started)).await,
            Err(error) => Err(error),
        };
        // A depth that has ended has scored all, unless the engine knows one line alone.
        let partial = probe && matches!(end, Ok(End::Finished)) && collector.depths().is_empty();
        if partial || matches!(end, Ok(End::Unlisted)) {
            return None;
        }
        Some(found(end, &collector, started))
    }

    /// Scores each candidate by a search of its own, after the move, in an equal share of the limits.
    pub(crate) async fn alone(&mut self, search: &Search, stop: &mut Stop<'_>) -> Found {
        let started = Instant::now();
        let mut merged = Collector::new(&search.position, &search.candidates);
        let limits = share(&search.limits, search.candidates.len());
        let mut settled = Vec::new();
        let (whole, mut complete) = (stop.deadline, true);
        let mut nodes = 0;
        let mut end = self.prepare(search.fresh, 1, stop.deadline).await.map(|()| End::Finished);
        for (place, &mv) in search.candidates.iter().enumerate() {
            match end {
                Ok(End::Finished) => {}
                // Its share of the time is over, but not the time.
                Ok(End::Stopped) if !stop.reply.is_closed() && whole.is_some_and(|end| Instant::now() < end) => {}
                _ => break,
            }
            let left = u32::try_from(search.candidates.len() - place).unwrap_or(u32::MAX);
            stop.deadline = whole.map(|end| Instant::now() + end.saturating_duration_since(Instant::now()) / left);
            let Ok(child) = search.position.clone().play(mv) else { continue };
            match terminal(&child) {
                Some(score) => settled.push((place, score)),
                None => {
                    (end, nodes) = self.child(&child, place, &limits, nodes, stop, &mut merged).await;
                    complete &= matches!(end, Ok(End::Finished));
                }
            }
        }
        if !complete && matches!(end, Ok(End::Finished)) {
            end = Ok(End::Stopped); // One of them was.
        }
        settle(&mut merged, &settled, search);
        found(end, &merged, started)
    }

    /// Searches one child and notes its scores from the mover's side. Gives the nodes searched so far.
    async fn child(
        &mut self,
        child: &Chess,
        place: usize,
        limits: &Limits,
        nodes: u64,
        stop: &mut Stop<'_>,
        merged: &mut Collector<'_>,
    ) -> (Result<End, UciError>, u64) {
        let replies = child.legal_moves().into_iter().collect::<Vec<Move>>();
        let mut own = Collector::new(child, &replies);
        let mut end = self.run(child, &go(limits, None), stop, &mut own, None).await;
        if matches!(end, Ok(End::Unlisted)) {
            // Every legal move is listed.
            end = Ok(End::Finished);
        }
        for (depth, spent, score) in own.newest() {
            merged.add(depth + 1, place, spent, from_child(score));
        }
        merged.count(nodes + own.nodes());
        (end, nodes + own.nodes())
    }

    /// Sets the number of lines, forgets earlier searches where asked, and waits until the engine is ready.
    async fn prepare(&mut self, fresh: bool, lines: usize, deadline: Option<Instant>) -> Result<(), UciError> {
        self.unasked = 0;
        if fresh {
            self.process.say("ucinewgame").await?;
        }
        if lines != self.lines {
            self.process.say(&format!("setoption name MultiPV value {lines}")).await?;
            self.lines = lines;
        }
        self.process.say("isready").await?;
        let patience = Instant::now() + self.silence;
        let last = deadline.map_or(patience, |deadline| patience.min(deadline + self.grace));
        let ready = timeout_at(last, until(&mut self.process, "readyok"));
        ready.await.map_err(|_| UciError::Hung)?.map(drop)
    }

    /// Runs one search and collects what it writes. With `answer_from`, the time since when, the caller is answered at the
    /// deadline, before the engine has obeyed.
    async fn run(
        &mut self,
        position: &Chess,
        command: &str,
        stop: &mut Stop<'_>,
        collector: &mut Collector<'_>,
        answer_from: Option<Instant>,
    ) -> Result<End, UciError> {
        let fen = Fen::from_position(position, EnPassantMode::Legal);
        self.process.say(&format!("position fen {fen}")).await?;
        self.process.say(command).await?;
        let never = Instant::now() + Duration::from_secs(365 * 86_400);
        // When the engine must have done what it was told, and what it then has not done.
        let mut obey = None;
        let mut why = End::Finished;
        for _ in 0..MOST_LINES {
            let silent = Instant::now() + self.silence;
            let line = tokio::select! {
                line = self.process.line() => line?,
                () = sleep_until(obey.unwrap_or(silent)) => {
                    if obey.is_some() {
                        return Ok(End::Hung);
                    }
                    (obey, why) = (Some(self.stop().await?), End::Stopped);
                    continue;
                }
                () = sleep_until(stop.deadline.unwrap_or(never)), if obey.is_none() => {
                    let known = answer_from.and_then(|started| collector.finish(started.elapsed(), false));
                    if let Some(evaluation) = known {
                        stop.reply.send(Ok(evaluation));
                    }
                    (obey, why) = (Some(self.stop().await?), End::Stopped);
                    continue;
                }
                () = stop.reply.closed(), if obey.is_none() => {
                    (obey, why) = (Some(self.stop().await?), End::Stopped);
                    continue;
                }
            };
            match info::parse(&line)? {
                Output::BestMove(mv) => return check_best(position, &mv).map(|()| why),
                Output::Info(info) => {
                    let unlisted = collector.take(&info)? == About::Unlisted;
                    if unlisted && obey.is_none() {
                        (obey, why) = (Some(self.stop().await?), End::Unlisted);
                    }
                }
                Output::Other => {}
            }
        }
        Err(UciError::Flood)
    }

    /// Tells the engine to stop. Gives when it must have done so.
    async fn stop(&mut self) -> Result<Instant, UciError> {
        self.process.say("stop").await?;
        Ok(Instant::now() + self.grace)
    }
}

/// What to report of a search that ended so.
fn found(end: Result<End, UciError>, collector: &Collector<'_>, started: Instant) -> Found {
    let evaluation = |complete| collector.finish(started.elapsed(), complete);
    match end {
        Ok(End::Finished | End::Unlisted) => {
            let nothing = || UciError::Lied("the search ended without a score".to_owned());
            let evaluation = evaluation(true).ok_or_else(nothing);
            Found { usable: evaluation.is_ok(), evaluation }
        }
        Ok(End::Stopped) => Found { evaluation: evaluation(false).ok_or(UciError::Deadline), usable: true },
        Ok(End::Hung) => Found { evaluation: evaluation(false).ok_or(UciError::Hung), usable: false },
        Err(error) => Found { usable: !error.is_fatal(), evaluation: Err(error) },
    }
}

async fn greet(process: &mut Process, config: &EngineConfig) -> Result<Names, UciError> {
    process.say("uci").await?;
    let mut names = Names::default();
    for line in until(process, "uciok").await? {
        if let Some(name) = line.strip_prefix("id name ") {
            name.trim().clone_into(&mut names.name);
        } else if let Some(author) = line.strip_prefix("id author ") {
            author.trim().clone_into(&mut names.author);
        }
    }
    for (name, value) in &config.options {
        process.say(&format!("setoption name {name} value {value}")).await?;
    }
    process.say("isready").await?;
    until(process, "readyok").await?;
    Ok(names)
}

/// Lines up to one that says only this.
async fn until(process: &mut Process, word: &str) -> Result<Vec<String>, UciError> {
    let mut lines = Vec::new();
    let mut count = 0;
    while count < MOST_UNASKED {
        let line = process.line().await?;
        if line == word {
            return Ok(lines);
        }
        count += 1;
        if line.starts_with("id ") {
            lines.push(line); // The others may be many and long.
        }
    }
    Err(UciError::Flood)
}

/// The command that starts a search.
fn go(limits: &Limits, candidates: Option<&[String]>) -> String {
    let mut command = "go".to_owned();
    let parts = [
        limits.depth.map(|depth| format!(" depth {depth}")),
        limits.nodes.map(|nodes| format!(" nodes {nodes}")),
        limits.movetime.map(|time| format!(" movetime {}", time.as_millis().max(1))),
    ];
    command.extend(parts.into_iter().flatten());
    if limits.is_empty() {
        command.push_str(" infinite");
    }
    // Last: some engines take every word after it for a move.
    if let Some(candidates) = candidates {
        command.push_str(" searchmoves ");
        command.push_str(&candidates.join(" "));
    }
    command
}

/// The limits of one of so many searches that together stand for one.
fn share(limits: &Limits, count: usize) -> Limits {
    let count = u32::try_from(count).unwrap_or(u32::MAX).max(1);
    Limits {
        depth: limits.depth.map(|depth| depth.saturating_sub(1).max(1)),
        nodes: limits.nodes.map(|nodes| (nodes / u64::from(count)).max(1)),
        movetime: limits.movetime.map(|time| time / count),
    }
}

/// An engine that is stopped before it has a move says so by one from a square to itself, `0000` or `(none)`.
fn check_best(position: &Chess, best: &str) -> Result<(), UciError> {
    let itself = best.is_ascii() && best.get(0..2).is_some_and(|from| best.get(2..4) == Some(from));
    let none = itself || best == "(none)";
    let legal = best.parse::<shakmaty::uci::UciMove>().is_ok_and(|uci| uci.to_move(position).is_ok());
    if none || legal {
        return Ok(());
    }
    Err(UciError::Lied(format!("bestmove {}", best.chars().take(20).collect::<String>())))
}

/// The score of a move that ends the game, from its mover's side.
fn terminal(child: &Chess) -> Option<Score> {
    match child {
        _ if child.is_checkmate() => Some(Score::Mate(1)),
        _ if child.is_stalemate() || child.is_insufficient_material() => Some(Score::Centipawns(0)),
        _ => None,
    }
}

/// The mover's score, from that of the opponent who moves next.
fn from_child(score: Score) -> Score {
    match score {
        Score::Centipawns(cp) => Score::Centipawns(-cp),
        Score::Mate(moves) if moves > 0 => Score::Mate(-moves),
        Score::Mate(moves) => Score::Mate(1 - moves),
    }
}

/// Moves that end the game have their score at every depth that the others reached, or at the depth asked for.
fn settle(merged: &mut Collector<'_>, settled: &[(usize, Score)], search: &Search) {
    let mut depths = merged.reached();
    if depths.is_empty() {
        depths.push(search.limits.depth.unwrap_or(1));
    }
    for (place, score) in settled {
        for &depth in &depths {
            merged.insert(depth, *place, 0, *score);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_the_opponent_are_turned_round() {
        assert_eq!(from_child(Score::Centipawns(-30)), Score::Centipawns(30));
        assert_eq!(from_child(Score::Mate(2)), Score::Mate(-2));
        assert_eq!(from_child(Score::Mate(-1)), Score::Mate(2));
    }

    #[test]
    fn no_best_move_is_no_lie_and_an_illegal_one_is() {
        let position = Chess::default();
        assert!(["e2e4", "a1a1", "0000", "(none)"].iter().all(|best| check_best(&position, best).is_ok()));
        for best in ["e7e5", "e2e5", "", "x", "\u{e9}\u{e9}\u{e9}"] {
            assert!(check_best(&position, best).is_err(), "{best}");
        }
    }

    #[test]
    fn commands_put_the_candidates_last() {
        let limits = Limits { depth: Some(8), nodes: Some(1000), movetime: Some(Duration::from_micros(1500)) };
        let moves = ["e2e4".to_owned(), "a7a8q".to_owned()];
        assert_eq!(go(&limits, Some(&moves)), "go depth 8 nodes 1000 movetime 1 searchmoves e2e4 a7a8q");
        assert_eq!(go(&Limits::default(), None), "go infinite");
        assert_eq!(go(&share(&limits, 4), None), "go depth 7 nodes 250 movetime 1");
    }
}
