//! Between the wire and the domain. No other file touches both.

use std::time::Duration;

use prost_types::Duration as WireDuration;
use zeitnot_encoding::{
    Conditions, Game, GameOver, LegalMoves, RankedMove, Situation, TimeControl, otter::ASSUMED_RATING,
};
use zeitnot_proto::v1;

use crate::{
    batcher::Reply,
    error::{ServiceError, Violation},
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
    /// The opponent's clock was given, though the encoding has no place for it.
    opponent_clock: bool,
    /// A rating came with its scale, though the encoding has no place for it.
    rating_system: bool,
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
    let systems = [("mover.rating_system", mover.rating_system), ("opponent.rating_system", opponent.rating_system)];
    for (field, system) in systems {
        if v1::RatingSystem::try_from(system).is_err() {
            wrong.push(Violation::new(field, format!("{system} is not a rating system")));
        }
    }
    let time_control = time_control(request.time_control, &mut wrong);
    let clock = request.clock.unwrap_or_default();
    let mover_clock = seconds("clock.mover_remaining", clock.mover_remaining, &mut wrong);
    let opponent_clock = seconds("clock.opponent_remaining", clock.opponent_remaining, &mut wrong);
    let game = game(request.position.unwrap_or_default(), max_moves, &mut wrong);
    match game {
        Some(game) if wrong.is_empty() => {
            let conditions = Conditions { mover_rating, opponent_rating, time_control, mover_clock };
            let legal = LegalMoves::of(game.position());
            Ok(Query {
                situation: game.situation(conditions),
                top_k: if request.top_k == 0 { legal.len() } else { request.top_k as usize },
                legal,
                game,
                model: request.model,
                opponent_clock: opponent_clock.is_some(),
                rating_system: systems.iter().any(|&(_, system)| system != 0),
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
    let moves = query.legal.top(query.game.position(), &reply.policy, query.top_k);
    v1::PredictResponse {
        moves: moves.into_iter().map(move_prediction).collect(),
        outlook: Some(v1::Outlook { expected_score: (0.5 + 0.5 * reply.value).clamp(0.0, 1.0) }),
        conditions: Some(conditions(query)),
        game_over: v1::GameOver::Unspecified.into(),
        model: Some(identity(model)),
        timings: Some(v1::Timings {
            queue: Some(duration(reply.queue)),
            inference: Some(duration(reply.inference)),
            batch_size: reply.batch_size as u32,
        }),
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
        conditions: Some(conditions(query)),
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

/// What the model was told, and what was unknown or had no place in `otter/1`.
fn conditions(query: &Query) -> v1::Conditions {
    let Conditions { mover_rating, opponent_rating, time_control, mover_clock } = query.situation.conditions;
    let initial = time_control.map(|control| control.initial).filter(|&initial| initial > 0.0);
    let missing = [
        ("mover.rating", mover_rating.is_none()),
        ("opponent.rating", opponent_rating.is_none()),
        ("time_control", time_control.is_none()),
        ("clock.mover_remaining", mover_clock.is_none()),
    ];
    let mut notes = Vec::new();
    match (mover_rating, opponent_rating) {
        (Some(_), Some(_)) => {}
        (None, Some(_)) => notes.push("mover.rating: assumed to be the opponent's".to_owned()),
        (Some(_), None) => notes.push("opponent.rating: assumed to be the mover's".to_owned()),
        (None, None) => notes.push(format!("ratings: both assumed to be {ASSUMED_RATING}")),
    }
    if mover_clock.is_some() && initial.is_none() {
        notes.push("clock.mover_remaining: not used without time_control.initial".to_owned());
    }
    if query.opponent_clock {
        notes.push("clock.opponent_remaining: not used by this encoding".to_owned());
    }
    if query.rating_system {
        notes.push("rating_system: not used by this encoding, which was trained on lichess ratings".to_owned());
    }
    let used = mover_clock.filter(|_| initial.is_some());
    v1::Conditions {
        mover_rating: mover_rating.map(u32::from),
        opponent_rating: opponent_rating.map(u32::from),
        time_control: time_control.map(|control| v1::TimeControl {
            initial: Some(wire_seconds(control.initial)),
            increment: Some(wire_seconds(control.increment)),
        }),
        mover_remaining: used.map(wire_seconds),
        history_moves: query.situation.history.tokens().iter().filter(|&&token| token != 0).count() as u32,
        unknown: missing.iter().filter(|(_, missing)| *missing).map(|(name, _)| (*name).to_owned()).collect(),
        notes,
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
        let conditions = conditions(&query);
        assert_eq!(query.top_k, 20);
        assert_eq!(conditions.unknown, ["mover.rating", "opponent.rating", "time_control", "clock.mover_remaining"]);
        assert_eq!(conditions.notes, ["ratings: both assumed to be 1500"]);
    }

    #[test]
    fn too_many_moves_are_refused_before_they_are_read() {
        let moves = vec!["banana".to_owned(); 101];
        let position = Some(v1::Position { initial_fen: String::new(), moves });
        let wrong = violations(v1::PredictRequest { position, ..v1::PredictRequest::default() });
        assert_eq!(wrong[0].0, "position.moves");
    }

    #[test]
    fn a_clock_without_initial_time_is_named_as_unused() {
        let request = v1::PredictRequest {
            time_control: Some(v1::TimeControl { initial: wire(0), increment: wire(2) }),
            clock: Some(v1::Clock { mover_remaining: wire(5), opponent_remaining: wire(6) }),
            ..v1::PredictRequest::default()
        };
        let conditions = conditions(&query(request, 100).unwrap());
        assert_eq!(conditions.mover_remaining, None);
        assert_eq!(conditions.notes.len(), 3);
    }
}
