//! Answers of predictions, and descriptions of models.

use std::{sync::Arc, time::Duration};

use prost_types::Duration as WireDuration;
use zeitnot_encoding::{GameOver, RankedMove, RatingSystem, ThinkTime, decode::softmax, encodings::Told};
use zeitnot_inference::Metadata;
use zeitnot_proto::v1;

use super::{Query, evidence};
use crate::{
    cache::Prediction,
    entries::{self, Chosen, Ensemble, Entry},
    jobs::Reply,
    models::Model,
    rerank::{Outcome, stage::Reranked},
};

/// The answer of a game that goes on.
pub fn response(query: &Query, reply: &Reply, reranked: &Reranked, chosen: &Chosen) -> v1::PredictResponse {
    let Prediction { logits: prior, outlook, think_time, .. } = &*reply.prediction;
    let logits = reranked.logits.as_deref().unwrap_or(prior);
    let before = softmax(prior.iter().copied());
    let mut told = evidence::by_place(reranked.evidence.as_ref(), query.legal.len());
    let mut predicted = |ranked: RankedMove| {
        let place = query.legal.moves().iter().position(|mv| *mv == ranked.mv);
        let at = |values: &[f32]| place.and_then(|place| values.get(place).copied());
        v1::MovePrediction {
            uci: ranked.uci,
            san: ranked.san,
            probability: ranked.probability,
            prior_probability: at(&before).unwrap_or(ranked.probability),
            evidence: place.and_then(|place| told.get_mut(place)?.take()),
        }
    };
    let moves = query.legal.top(query.game.position(), logits, query.top_k);
    let [win, draw, loss] = outlook.wdl.map_or([None; 3], |wdl| wdl.map(Some));
    let mut conditions = conditions(query, chosen);
    conditions.style = reranked.style.clone().unwrap_or_default();
    conditions.notes.extend(reranked.notes.iter().cloned());
    v1::PredictResponse {
        moves: moves.into_iter().map(&mut predicted).collect(),
        outlook: Some(v1::Outlook { expected_score: outlook.expected_score, win, draw, loss }),
        think_time: think_time.as_ref().map(quantiles),
        conditions: Some(conditions),
        game_over: v1::GameOver::Unspecified.into(),
        model: Some(identity(chosen)),
        timings: Some(v1::Timings {
            queue: Some(duration(reply.queue)),
            inference: Some(duration(reply.inference)),
            batch_size: reply.batch_size as u32,
            engine: reranked.engine.map(duration),
            rerank: reranked.rerank.map(duration),
        }),
        cached: reply.cached,
        rerank_status: status(reranked.outcome).into(),
        insight: reranked.evidence.as_ref().and_then(|found| evidence::insight(query, found, logits)),
    }
}

fn status(outcome: Outcome) -> v1::RerankStatus {
    match outcome {
        Outcome::Applied => v1::RerankStatus::Applied,
        Outcome::PriorOnly => v1::RerankStatus::PriorOnly,
        Outcome::EngineUnavailable => v1::RerankStatus::SkippedEngineUnavailable,
        Outcome::Deadline => v1::RerankStatus::SkippedDeadline,
        Outcome::BelowRating => v1::RerankStatus::SkippedBelowRating,
        Outcome::OneLegalMove => v1::RerankStatus::SkippedOneLegalMove,
    }
}

/// The answer of a game that is over.
pub fn over(query: &Query, over: GameOver, chosen: &Chosen) -> v1::PredictResponse {
    let over = match over {
        GameOver::Checkmate => v1::GameOver::Checkmate,
        GameOver::Stalemate => v1::GameOver::Stalemate,
        GameOver::InsufficientMaterial => v1::GameOver::InsufficientMaterial,
        GameOver::SeventyFiveMoves => v1::GameOver::SeventyFiveMoves,
        GameOver::FivefoldRepetition => v1::GameOver::FivefoldRepetition,
    };
    v1::PredictResponse {
        conditions: Some(conditions(query, chosen)),
        game_over: over.into(),
        model: Some(identity(chosen)),
        ..v1::PredictResponse::default()
    }
}

/// The description of what a name stands for.
pub fn entry(entry: &Entry, is_default: bool) -> v1::Model {
    match entry {
        Entry::Model(model) => described(model.metadata.clone(), Some(model), &model.sha256, is_default),
        Entry::Ensemble(ensemble) => v1::Model {
            members: ensemble.members.iter().enumerate().map(|(place, model)| member(ensemble, place, model)).collect(),
            interpolated: ensemble.rule.interpolate,
            ..described(ensemble.metadata(), ensemble.members.first(), &ensemble.sha256, is_default)
        },
    }
}

fn described(metadata: Metadata, runs: Option<&Arc<Model>>, sha256: &str, is_default: bool) -> v1::Model {
    v1::Model {
        name: metadata.name,
        version: metadata.version,
        encoding: metadata.encoding,
        vocabulary: metadata.vocabulary,
        trained_on: metadata.trained_on,
        metrics_json: metadata.metrics,
        license: metadata.license,
        execution_provider: runs.map_or_else(String::new, |model| model.provider.name().to_owned()),
        sha256: sha256.to_owned(),
        is_default,
        members: Vec::new(),
        interpolated: false,
        source: metadata.source,
        source_sha256: metadata.source_sha256,
    }
}

fn member(ensemble: &Ensemble, place: usize, model: &Model) -> v1::Member {
    let (lowest, highest) = ensemble.rule.range(place);
    v1::Member {
        name: model.metadata.name.clone(),
        rating: ensemble.rule.members.get(place).map_or(0, |member| u32::from(member.rating)),
        lowest_rating: lowest.map(u32::from),
        highest_rating: highest.map(u32::from),
    }
}

fn identity(chosen: &Chosen) -> v1::ModelIdentity {
    let lead = &chosen.lead.metadata;
    let share = |model: &Model, weight| v1::MemberShare { name: model.metadata.name.clone(), weight };
    let (name, version, members) = match &chosen.entry {
        Entry::Model(_) => (&lead.name, &lead.version, Vec::new()),
        Entry::Ensemble(ensemble) => {
            let other = chosen.other.iter().map(|(model, weight)| share(model, *weight));
            let members = std::iter::once(share(&chosen.lead, chosen.weight)).chain(other).collect();
            (&ensemble.rule.name, &ensemble.rule.version, members)
        }
    };
    v1::ModelIdentity { name: name.clone(), version: version.clone(), encoding: lead.encoding.clone(), members }
}

fn quantiles(time: &ThinkTime) -> v1::ThinkTime {
    let at = |share| Some(wire_seconds(time.quantile(share)));
    v1::ThinkTime { median: at(0.5), p10: at(0.1), p90: at(0.9) }
}

/// What the model was told or chosen by, and what was unknown or had no place in its encoding.
fn conditions(query: &Query, chosen: &Chosen) -> v1::Conditions {
    let mut told = chosen.lead.encoding.told(&query.situation);
    if let Some(by) = chosen.by {
        entries::tell(by, &query.situation.conditions, &mut told);
    }
    told_conditions(query, told)
}

/// The conditions with what of them was used.
pub(super) fn told_conditions(query: &Query, told: Told) -> v1::Conditions {
    let given = &query.situation.conditions;
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
        style: String::new(),
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
