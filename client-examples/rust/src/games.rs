//! Requests from the positions of real games: each as it stood when its move was to be played, with the clocks then.

use std::{
    fs::File,
    io::{BufReader, Read},
    ops::ControlFlow,
    path::Path,
};

use anyhow::{Context, Result};
use pgn_reader::{RawComment, RawTag, Reader, SanPlus, Skip, Visitor};
use prost_types::Duration;
use zeitnot_proto::v1::{Clock, Mover, Opponent, Position, PredictRequest, RatingSystem, TimeControl};

/// One game: its requests, in order of play.
pub type Game = Vec<PredictRequest>;

/// Reads at most `limit` games of a PGN file, plain or compressed with zstd. Games from set-up positions are left out.
///
/// # Errors
///
/// When the file cannot be read.
pub fn read(path: &Path, limit: usize) -> Result<Vec<Game>> {
    let shown = || path.display().to_string();
    let file = File::open(path).with_context(shown)?;
    let text: Box<dyn Read> = match path.extension().is_some_and(|end| end == "zst") {
        true => Box::new(zstd::Decoder::new(file).with_context(shown)?),
        false => Box::new(BufReader::new(file)),
    };
    let mut reader = Reader::new(text);
    let mut games = Vec::new();
    while games.len() < limit {
        match reader.read_game(&mut Requests).with_context(shown)? {
            Some(Some(game)) => games.push(game),
            Some(None) => {}
            None => break,
        }
    }
    Ok(games)
}

/// What a game's tags say.
#[derive(Clone, Debug, Default)]
struct Tags {
    ratings: [Option<u32>; 2],
    initial: Option<i64>,
    increment: i64,
    lichess: bool,
    set_up: bool,
}

/// A game being read. Index 0 is White, 1 is Black.
#[derive(Debug)]
struct Playing {
    tags: Tags,
    moves: Vec<String>,
    clocks: [Option<Duration>; 2],
    requests: Game,
}

struct Requests;

impl Visitor for Requests {
    type Tags = Tags;
    type Movetext = Playing;
    type Output = Option<Game>;

    fn begin_tags(&mut self) -> ControlFlow<Self::Output, Tags> {
        ControlFlow::Continue(Tags::default())
    }

    fn tag(&mut self, tags: &mut Tags, name: &[u8], value: RawTag<'_>) -> ControlFlow<Self::Output> {
        let text = value.decode_utf8_lossy();
        match name {
            b"WhiteElo" => tags.ratings[0] = text.parse().ok(),
            b"BlackElo" => tags.ratings[1] = text.parse().ok(),
            b"Site" => tags.lichess = text.contains("lichess.org"),
            b"FEN" | b"Variant" => tags.set_up = tags.set_up || text != "Standard",
            b"TimeControl" => {
                let (initial, increment) = text.split_once('+').unwrap_or((&text, "0"));
                tags.initial = initial.parse().ok();
                tags.increment = increment.parse().unwrap_or(0);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn begin_movetext(&mut self, tags: Tags) -> ControlFlow<Self::Output, Playing> {
        if tags.set_up {
            return ControlFlow::Break(None);
        }
        let clock = tags.initial.map(|seconds| Duration { seconds, nanos: 0 });
        ControlFlow::Continue(Playing { tags, moves: Vec::new(), clocks: [clock; 2], requests: Vec::new() })
    }

    fn san(&mut self, game: &mut Playing, san: SanPlus) -> ControlFlow<Self::Output> {
        game.requests.push(game.request());
        game.moves.push(san.to_string());
        ControlFlow::Continue(())
    }

    fn comment(&mut self, game: &mut Playing, comment: RawComment<'_>) -> ControlFlow<Self::Output> {
        // What is left after the move, and so before the same player's next one.
        if let (Some(clock), Some(place)) = (clock(comment.as_bytes()), game.moves.len().checked_sub(1))
            && let Some(own) = game.clocks.get_mut(place % 2)
        {
            *own = Some(clock);
        }
        ControlFlow::Continue(())
    }

    fn begin_variation(&mut self, _: &mut Playing) -> ControlFlow<Self::Output, Skip> {
        ControlFlow::Continue(Skip(true))
    }

    fn end_game(&mut self, game: Playing) -> Self::Output {
        Some(game.requests)
    }
}

impl Playing {
    fn request(&self) -> PredictRequest {
        let Tags { ratings: [white, black], lichess, .. } = self.tags;
        let [white_clock, black_clock] = self.clocks;
        let white_moves = self.moves.len().is_multiple_of(2);
        let (mover, opponent) = if white_moves { (white, black) } else { (black, white) };
        let (mover_remaining, opponent_remaining) =
            if white_moves { (white_clock, black_clock) } else { (black_clock, white_clock) };
        let system = if lichess { RatingSystem::Lichess } else { RatingSystem::Unspecified };
        let whole = |seconds| Some(Duration { seconds, nanos: 0 });
        PredictRequest {
            position: Some(Position { initial_fen: String::new(), moves: self.moves.clone() }),
            mover: Some(Mover { rating: mover, rating_system: system.into(), style: None }),
            opponent: Some(Opponent { rating: opponent, rating_system: system.into() }),
            time_control: self
                .tags
                .initial
                .filter(|initial| initial + self.tags.increment > 0)
                .map(|initial| TimeControl { initial: whole(initial), increment: whole(self.tags.increment) }),
            clock: Some(Clock { mover_remaining, opponent_remaining }),
            ..PredictRequest::default()
        }
    }
}

/// The time of a `[%clk h:mm:ss]` comment.
fn clock(comment: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(comment).ok()?;
    let (_, rest) = text.split_once("[%clk ")?;
    let (time, _) = rest.split_once(']')?;
    let seconds = time.split(':').try_fold(0.0, |sum, part| Some(sum * 60.0 + part.trim().parse::<f64>().ok()?))?;
    let milliseconds = (seconds.clamp(0.0, 86_400.0) * 1e3).round() as i64;
    Some(Duration { seconds: milliseconds / 1000, nanos: (milliseconds % 1000) as i32 * 1_000_000 })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_the_game_and_the_clocks_before_the_move() {
        let folder = std::env::temp_dir().join(format!("zeitnot-load-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("games.pgn");
        let pgn = "[Site \"https://lichess.org/x\"]\n[WhiteElo \"1500\"]\n[BlackElo \"?\"]\n[TimeControl \"300+3\"]\n\n\
            1. e4 { [%clk 0:05:00] } e5 { [%clk 0:04:58.5] } (1... c5) 2. Nf3 { [%clk 0:04:57] } 1-0\n\n\
            [FEN \"8/8/8/8/8/k7/8/K6R w - - 0 1\"]\n\n1. Rh3# 1-0\n\n[TimeControl \"-\"]\n\n1. d4 *\n";
        std::fs::write(&path, pgn).unwrap();
        let games = read(&path, 9).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        assert_eq!(games.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1]);
        let third = &games[0][2];
        assert_eq!(third.position.as_ref().unwrap().moves, ["e4", "e5"]);
        assert_eq!((third.mover.as_ref().unwrap().rating, third.opponent.as_ref().unwrap().rating), (Some(1500), None));
        let clock = third.clock.as_ref().unwrap();
        let ms = |seconds, nanos| Some(Duration { seconds, nanos });
        assert_eq!((clock.mover_remaining, clock.opponent_remaining), (ms(300, 0), ms(298, 500_000_000)));
        assert_eq!(third.time_control.as_ref().unwrap().increment, ms(3, 0));
        assert!(games[1][0].time_control.is_none() && games[1][0].clock.as_ref().unwrap().mover_remaining.is_none());
    }
}
