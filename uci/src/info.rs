//! The lines that engines write while they search.

use shakmaty::uci::UciMove;

use crate::{Score, UciError};

/// Largest centipawns and moves to mate that an engine may claim.
const MOST_CENTIPAWNS: u32 = 1_000_000;
const MOST_MATE: u32 = 1_000;
/// Most plies that an engine may claim.
const MOST_DEPTH: u32 = 1_000;

/// An `info` line with a score and a move.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Info {
    pub(crate) depth: u32,
    pub(crate) nodes: u64,
    pub(crate) score: Score,
    /// Whether the score is only a bound.
    pub(crate) bound: bool,
    /// The first move of the line.
    pub(crate) first: UciMove,
}

/// A line from the engine, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Output {
    /// A scored line.
    Info(Info),
    /// The end of a search.
    BestMove(String),
    /// Anything else.
    Other,
}

/// Reads a line. Fields may stand in any order before `pv`.
pub(crate) fn parse(line: &str) -> Result<Output, UciError> {
    let mut words = line.split_ascii_whitespace();
    match words.next() {
        Some("bestmove") => Ok(Output::BestMove(words.next().unwrap_or_default().to_owned())),
        Some("info") => info(line, words),
        _ => Ok(Output::Other),
    }
}

fn info<'a>(line: &str, mut words: impl Iterator<Item = &'a str>) -> Result<Output, UciError> {
    let nonsense = || UciError::Lied(line.chars().take(200).collect());
    let (mut depth, mut nodes, mut score, mut bound, mut first) = (None, 0, None, false, None);
    while let Some(word) = words.next() {
        match word {
            "depth" => depth = Some(read_depth(words.next()).ok_or_else(nonsense)?),
            "nodes" => nodes = words.next().and_then(|word| word.parse().ok()).unwrap_or(0),
            "score" => score = Some(read_score(words.next(), words.next()).ok_or_else(nonsense)?),
            "lowerbound" | "upperbound" => bound = true,
            "string" => return Ok(Output::Other),
            "pv" => {
                let Some(word) = words.next() else { break };
                first = Some(word.parse().map_err(|_| nonsense())?);
                break;
            }
            _ => {}
        }
    }
    match (depth, score, first) {
        (Some(depth), Some(score), Some(first)) => Ok(Output::Info(Info { depth, nodes, score, bound, first })),
        _ => Ok(Output::Other),
    }
}

fn read_depth(word: Option<&str>) -> Option<u32> {
    word?.parse().ok().filter(|depth| *depth <= MOST_DEPTH)
}

fn read_score(kind: Option<&str>, value: Option<&str>) -> Option<Score> {
    let value = value?.parse::<i32>().ok()?;
    match kind? {
        "cp" if value.unsigned_abs() <= MOST_CENTIPAWNS => Some(Score::Centipawns(value)),
        // Mate in 0 is a game that has ended; nobody searches there.
        "mate" if value != 0 && value.unsigned_abs() <= MOST_MATE => Some(Score::Mate(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Info {
        match parse(line).unwrap() {
            Output::Info(info) => info,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn lines_of_four_engines_are_read() {
        let stockfish = "info depth 6 seldepth 3 multipv 4 score cp -480 nodes 1278 nps 319500 hashfull 0 tbhits 0 time 4 pv c5f2 e1f2 f6g4";
        let info = read(stockfish);
        assert_eq!((info.depth, info.nodes, info.score, info.bound), (6, 1278, Score::Centipawns(-480), false));
        assert_eq!(info.first.to_string(), "c5f2");
        let glaurung = read("info multipv 1 score cp -7 depth 6 time 18 nodes 17341 nps 963388 pv e8g8 e1g1 d7d6 ");
        assert_eq!((glaurung.depth, glaurung.nodes, glaurung.score), (6, 17341, Score::Centipawns(-7)));
        let ethereal = read(
            "info depth 5 seldepth 2 multipv 1 score mate -3 time 1 nodes 743 nps 371000 tbhits 0 hashfull 0 pv a7a8q b2b3",
        );
        assert_eq!((ethereal.score, ethereal.first.to_string().as_str()), (Score::Mate(-3), "a7a8q"));
        let toga = read("info multipv 2 depth 6 seldepth 18 score cp -19 upperbound time 10 nodes 19311 pv d7d6 e1g1");
        assert!(toga.bound);
    }

    #[test]
    fn what_is_no_scored_line_is_passed_over() {
        for line in [
            "",
            "readyok",
            "info depth 5 currmove e2e4 currmovenumber 1",
            "info string score cp 999999999 pv nothing",
            "info nodes 5 nps 100",
            "option name Hash type spin",
        ] {
            assert_eq!(parse(line).unwrap(), Output::Other, "{line}");
        }
        assert_eq!(parse("bestmove e2e4 ponder e7e5").unwrap(), Output::BestMove("e2e4".into()));
    }

    #[test]
    fn nonsense_is_a_lie() {
        for line in [
            "info depth 5 score cp 99999999999999999999 pv e2e4",
            "info depth 5 score cp 2000000 pv e2e4",
            "info depth 5 score mate 5000 pv e2e4",
            "info depth 5 score cp nan pv e2e4",
            "info depth 5 score elo 5 pv e2e4",
            "info depth 5 score cp 5 pv j9j0",
        ] {
            assert!(matches!(parse(line), Err(UciError::Lied(text)) if text == line), "{line}");
        }
    }
}
