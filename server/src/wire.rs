//! Between the wire and the domain. No other file touches both.

use std::time::Duration;

use prost_types::Duration as WireDuration;
use zeitnot_encoding::{
    Conditions, Encoding, Game, GameOver, LegalMoves, RankedMove, RatingSystem, Situation, ThinkTime, TimeControl,
};
use zeitnot_proto::v1;

use crate::{
    cache::Prediction,
    error::{ServiceError, Violation},
    jobs::Reply,
    models::Model,
};

/// Highest rating that is taken for one.
const HIGHEST_RATING: u32 = 4000;
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

/// The answer of a game that goes on.
pub fn response(query: &Query, reply: &Reply, model: &Model) -> v1::PredictResponse {
    let Prediction { logits, outlook, think_time } = &*reply.prediction;
    let moves = query.legal.top(query.game.position(), logits, query.top_k);
    let [win, draw, loss] = outlook.wdl.map_or([None; 3], |wdl| wdl.map(Some));
    v1::PredictResponse {
        moves: moves.into_iter().map(move_prediction).collect(),
        outlook: Some(v1::Outlook { expected_score: outlook.expected_score, win, draw, loss }),
        think_time: think_time.as_ref().map(quantiles),
        conditions: Some(conditions(query, model.encoding)),
        game_over: v1::GameOver::Unspecified.into(),
        model: Some(identity(model)),
        timings: Some(v1::Timings {
            queue: Some(duration(reply.queue)),
            inference: Some(duration(reply.inference)),
            batch_size: reply.batch_size as u32,
        }),
        cached: reply.cached,
    }
}

/// The answer of a game that is over.
pub fn over(query: &Query, over: GameOver, model: &Model) -> v1::PredictResponse {
    let over = match over {
        GameOver::Checkmate => v1::GameOver::Checkmate,
        GameOver::Stalemate => v1::GameOver::Stalemate,
        GameOver::InsufficientMaterial => v1::GameOver::InsufficientMaterial,
        GameOver::SeventyFiveMoves => v1::GameOver::SeventyFiveMoves,
        GameOver::FivefoldRepetition => v1::GameOver::FivefoldRepetition,
    };
    v1::PredictResponse {
        conditions: Some(conditions(query, model.encoding)),
        game_over: over.into(),
        model: Some(identity(model)),
        ..v1::PredictResponse::default()
    }
}

/// A model's description.
pub fn model(model: &Model, is_default: bool) -> v1::Model {
    let metadata = model.metadata.clone();
    v1::Model {
        name: metadata.name,
        version: metadata.version,
        encoding: metadata.encoding,
        vocabulary: metadata.vocabulary,
        trained_on: metadata.trained_on,
        metrics_json: metadata.metrics,
        license: metadata.license,
        execution_provider: model.provider.name().to_owned(),
        sha256: model.sha256.clone(),
        is_default,
    }
}

fn move_prediction(ranked: RankedMove) -> v1::MovePrediction {
    v1::MovePrediction { uci: ranked.uci, san: ranked.san, probability: ranked.probability }
}

fn identity(model: &Model) -> v1::ModelIdentity {
    let metadata = &model.metadata;
    v1::ModelIdentity {
        name: metadata.name.clone(),
        version: metadata.version.clone(),
        encoding: metadata.encoding.clone(),
    }
}

fn quantiles(time: &ThinkTime) -> v1::ThinkTime {
    let at = |share| Some(wire_seconds(time.quantile(share)));
    v1::ThinkTime { median: at(0.5), p10: at(0.1), p90: at(0.9) }
}

/// What the model was told, and what was unknown or had no place in its encoding.
fn conditions(query: &Query, encoding: &dyn Encoding) -> v1::Conditions {
    let given = &query.situation.conditions;
    let told = encoding.told(&query.situation);
    let used = &told.conditions;
    let missing = [
        ("mover.rating", given.mover_rating.is_none()),
        ("opponent.rating", given.opponent_rating.is_none()),
        ("mover.rating_system", given.mover_system.is_none()),
        ("opponent.rating_system", given.opponent_system.is_none()),
        ("time_control", given.time_control.is_none()),
        ("clock.mover_remaining", given.mover_clock.is_none()),
        ("clock.opponent_remaining", given.opponent_clock.is_none()),
    ];
    v1::Conditions {
        mover_rating: used.mover_rating.map(u32::from),
        opponent_rating: used.opponent_rating.map(u32::from),
        mover_rating_system: wire_system(used.mover_system).into(),
        opponent_rating_system: wire_system(used.opponent_system).into(),
        time_control: used.time_control.map(|control| v1::TimeControl {
            initial: Some(wire_seconds(control.initial)),
            increment: Some(wire_seconds(control.increment)),
        }),
        mover_remaining: used.mover_clock.map(wire_seconds),
        opponent_remaining: used.opponent_clock.map(wire_seconds),
        history_moves: told.history as u32,
        unknown: missing.iter().filter(|(_, missing)| *missing).map(|(name, _)| (*name).to_owned()).collect(),
        notes: told.notes,
    }
}

fn wire_system(system: Option<RatingSystem>) -> v1::RatingSystem {
    match system {
        None => v1::RatingSystem::Unspecified,
        Some(RatingSystem::Lichess) => v1::RatingSystem::Lichess,
        Some(RatingSystem::ChessCom) => v1::RatingSystem::Chesscom,
        Some(RatingSystem::Fide) => v1::RatingSystem::Fide,
    }
}

/// Seconds that were checked to be a duration, in whole milliseconds.
fn wire_seconds(seconds: f32) -> WireDuration {
    duration(Duration::from_millis((f64::from(seconds) * 1000.0).round() as u64))
}

fn duration(duration: Duration) -> WireDuration {
    WireDuration { seconds: duration.as_secs() as i64, nanos: duration.subsec_nanos() as i32 }
}

#[cfg(test)]
mod tests {
    use zeitnot_encoding::{Otter, Zeitnot};

    use super::*;

    fn violations(request: v1::PredictRequest) -> Vec<(String, String)> {
        match query(request, 100) {
            Err(ServiceError::Invalid(wrong)) => wrong.into_iter().map(|v| (v.field, v.problem)).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn wire(seconds: i64) -> Option<WireDuration> {
        Some(WireDuration { seconds, nanos: 0 })
    }

    #[test]
    fn every_bad_field_is_named() {
        let moves = ["e4", "e5", "Nf7"].map(str::to_owned).to_vec();
        let request = v1::PredictRequest {
            position: Some(v1::Position { initial_fen: String::new(), moves }),
            mover: Some(v1::Mover { rating: Some(9000), rating_system: 77 }),
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
