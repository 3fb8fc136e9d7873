//! Between the wire and the domain: what is asked here, answers in [`answer`], sidecars in [`engine`].
//! No other files touch both.

pub mod answer;
pub mod engine;
mod evidence;
mod rerank;

use std::time::Duration;

use prost_types::Duration as WireDuration;
use zeitnot_encoding::{Conditions, Game, LegalMoves, RatingSystem, Situation, TimeControl};
use zeitnot_proto::v1;

use crate::{
    error::{ServiceError, Violation},
    rerank::Asked,
};

/// Highest rating that is taken for one.
const HIGHEST_RATING: u32 = 5000;
/// Longest duration that is taken for a clock, in seconds: a day.
const LONGEST_CLOCK: f32 = 86_400.0;

/// A request that makes sense.
#[derive(Debug)]
pub struct Query {
    /// The game.
    pub game: Game,
    /// What the predictor knows.
    pub situation: Situation,
    /// Legal moves of the position.
    pub legal: LegalMoves,
    /// Most moves to answer.
    pub top_k: usize,
    /// Name of the model, empty for the default one.
    pub model: String,
    /// How to re-rank.
    pub rerank: Asked,
}

/// Reads a request and names everything that is wrong with it.
///
/// # Errors
///
/// [`ServiceError::Invalid`] with one violation a field.
pub fn query(request: v1::PredictRequest, max_moves: usize) -> Result<Query, ServiceError> {
    let mut wrong = Vec::new();
    let mover = request.mover.unwrap_or_default();
    let opponent = request.opponent.unwrap_or_default();
    let mover_rating = rating("mover.rating", mover.rating, &mut wrong);
    let opponent_rating = rating("opponent.rating", opponent.rating, &mut wrong);
    let mover_system = rating_system("mover.rating_system", mover.rating_system, &mut wrong);
    let opponent_system = rating_system("opponent.rating_system", opponent.rating_system, &mut wrong);
    let time_control = time_control(request.time_control, &mut wrong);
    let clock = request.clock.unwrap_or_default();
    let mover_clock = seconds("clock.mover_remaining", clock.mover_remaining, &mut wrong);
    let opponent_clock = seconds("clock.opponent_remaining", clock.opponent_remaining, &mut wrong);
    let rerank = rerank::asked(request.rerank, mover.style, &mut wrong);
    let game = game(request.position.unwrap_or_default(), max_moves, &mut wrong);
    match game {
        Some(game) if wrong.is_empty() => {
            let conditions = Conditions {
                mover_rating,
                opponent_rating,
                mover_system,
                opponent_system,
                time_control,
                mover_clock,
                opponent_clock,
            };
            let legal = LegalMoves::of(game.position());
            Ok(Query {
                situation: game.situation(conditions),
                top_k: if request.top_k == 0 { legal.len() } else { request.top_k as usize },
                legal,
                game,
                model: request.model,
                rerank,
            })
        }
        _ => Err(ServiceError::Invalid(wrong)),
    }
}

fn game(position: v1::Position, max_moves: usize, wrong: &mut Vec<Violation>) -> Option<Game> {
    if position.moves.len() > max_moves {
        let problem = format!("{} moves are more than the {max_moves} that are accepted", position.moves.len());
        wrong.push(Violation::new("position.moves", problem));
        return None;
    }
    match Game::parse(&position.initial_fen, &position.moves) {
        Ok(game) => Some(game),
        Err(error) => {
            wrong.push(Violation::new(format!("position.{}", error.field()), error.problem()));
            None
        }
    }
}

fn rating(field: &str, rating: Option<u32>, wrong: &mut Vec<Violation>) -> Option<u16> {
    let rating = rating?;
    match u16::try_from(rating) {
        Ok(small) if rating <= HIGHEST_RATING => Some(small),
        _ => {
            wrong.push(Violation::new(field, format!("{rating} is not between 0 and {HIGHEST_RATING}")));
            None
        }
    }
}

fn rating_system(field: &str, system: i32, wrong: &mut Vec<Violation>) -> Option<RatingSystem> {
    match v1::RatingSystem::try_from(system) {
        Ok(v1::RatingSystem::Unspecified) => None,
        Ok(v1::RatingSystem::Lichess) => Some(RatingSystem::Lichess),
        Ok(v1::RatingSystem::Chesscom) => Some(RatingSystem::ChessCom),
        Ok(v1::RatingSystem::Fide) => Some(RatingSystem::Fide),
        Err(_) => {
            wrong.push(Violation::new(field, format!("{system} is not a rating system")));
            None
        }
    }
}

fn seconds(field: &str, duration: Option<WireDuration>, wrong: &mut Vec<Violation>) -> Option<f32> {
    let duration = duration?;
    let seconds = Duration::try_from(duration).ok().map(|duration| duration.as_secs_f32());
    match seconds {
        Some(seconds) if seconds <= LONGEST_CLOCK => Some(seconds),
        _ => {
            wrong.push(Violation::new(field, format!("{duration} is not between 0 and {LONGEST_CLOCK} seconds")));
            None
        }
    }
}

fn time_control(control: Option<v1::TimeControl>, wrong: &mut Vec<Violation>) -> Option<TimeControl> {
    let control = control?;
    if control.initial.is_none() {
        wrong.push(Violation::new("time_control.initial", "is missing; leave out time_control when it is unknown"));
    }
    let initial = seconds("time_control.initial", control.initial, wrong)?;
    let increment = match control.increment {
        Some(increment) => seconds("time_control.increment", Some(increment), wrong)?,
        None => 0.0,
    };
    if initial + increment <= 0.0 {
        wrong.push(Violation::new("time_control", "gives no time at all; leave it out when it is unknown"));
        return None;
    }
    Some(TimeControl { initial, increment })
}

#[cfg(test)]
mod tests {
    use zeitnot_encoding::{Encoding, Otter, Zeitnot};

    use super::{answer::told_conditions, *};

    fn violations(request: v1::PredictRequest) -> Vec<(String, String)> {
        match query(request, 100) {
            Err(ServiceError::Invalid(wrong)) => wrong.into_iter().map(|v| (v.field, v.problem)).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn conditions(query: &Query, encoding: &dyn Encoding) -> v1::Conditions {
        told_conditions(query, encoding.told(&query.situation))
    }

    fn wire(seconds: i64) -> Option<WireDuration> {
        Some(WireDuration { seconds, nanos: 0 })
    }

    #[test]
    fn every_bad_field_is_named() {
        let moves = ["e4", "e5", "Nf7"].map(str::to_owned).to_vec();
        let request = v1::PredictRequest {
            position: Some(v1::Position { initial_fen: String::new(), moves }),
            mover: Some(v1::Mover { rating: Some(9000), rating_system: 77, style: None }),
            time_control: Some(v1::TimeControl { initial: wire(-1), increment: None }),
            clock: Some(v1::Clock { mover_remaining: wire(100_000), opponent_remaining: None }),
            ..v1::PredictRequest::default()
        };
        let fields = violations(request);
        let named = fields.iter().map(|(field, _)| field.as_str()).collect::<Vec<_>>();
        let expected = [
            "mover.rating",
            "mover.rating_system",
            "time_control.initial",
            "clock.mover_remaining",
            "position.moves[2]",
        ];
        assert_eq!(named, expected);
        assert_eq!(fields[4].1, "Nf7 is not legal in this position");
    }

    #[test]
    fn an_empty_request_is_the_standard_start_with_everything_unknown() {
        let query = query(v1::PredictRequest::default(), 100).unwrap();
        assert_eq!(query.top_k, 20);
        let unknown = [
            "mover.rating",
            "opponent.rating",
            "mover.rating_system",
            "opponent.rating_system",
            "time_control",
            "clock.mover_remaining",
            "clock.opponent_remaining",
        ];
        let ours = conditions(&query, &Zeitnot);
        assert_eq!((&ours.unknown[..], &ours.notes[..]), (&unknown.map(str::to_owned)[..], &[][..]));
        let otter = conditions(&query, &Otter);
        assert_eq!(otter.unknown, unknown);
        assert_eq!(otter.notes, ["ratings: both assumed to be 1500"]);
    }

    #[test]
    fn too_many_moves_are_refused_before_they_are_read() {
        let moves = vec!["banana".to_owned(); 101];
        let position = Some(v1::Position { initial_fen: String::new(), moves });
        let wrong = violations(v1::PredictRequest { position, ..v1::PredictRequest::default() });
        assert_eq!(wrong[0].0, "position.moves");
    }

    #[test]
    fn what_an_encoding_has_no_place_for_is_named_as_unused() {
        let request = v1::PredictRequest {
            time_control: Some(v1::TimeControl { initial: wire(0), increment: wire(2) }),
            clock: Some(v1::Clock { mover_remaining: wire(5), opponent_remaining: wire(6) }),
            ..v1::PredictRequest::default()
        };
        let query = query(request, 100).unwrap();
        let otter = conditions(&query, &Otter);
        assert_eq!((otter.mover_remaining, otter.opponent_remaining, otter.notes.len()), (None, None, 3));
        let ours = conditions(&query, &Zeitnot);
        assert_eq!((ours.mover_remaining, ours.opponent_remaining), (wire(5), wire(6)));
        assert!(ours.notes.is_empty());
    }
}
