//! Decides whether a prediction is re-ranked, and does it: the prior's candidates, an engine's evidence, the residuals.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use tokio::sync::Semaphore;
use zeitnot_encoding::{
    evidence::Score,
    rerank::{Candidates, RerankBatch, Row},
};
use zeitnot_inference::allocation;

use super::{
    Asked, ChosenStyle, Mode, Outcome, StyleAsked,
    budget::Plan,
    engines::{Engines, Missing, Question, Scored},
    kit::Kit,
};
use crate::{
    cache::Prediction,
    config::{Config, DefaultMode},
    error::ServiceError,
    metrics::RerankMetrics,
    models::Model,
    wire::Query,
};

/// Re-ranks predictions.
#[derive(Clone, Debug)]
pub struct Stage {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    engines: Option<Engines>,
    mode: Mode,
    rating: u16,
    factor: f64,
    /// Requests that may wait for evidence at the same time.
    places: Semaphore,
    metrics: RerankMetrics,
}

/// A prediction to re-rank.
#[derive(Debug)]
pub struct Subject<'a> {
    /// What was asked.
    pub query: &'a Query,
    /// What the model predicts.
    pub prediction: &'a Prediction,
    /// The model.
    pub model: &'a Model,
    /// What re-ranks.
    pub kit: &'a Kit,
    /// The style to apply.
    pub style: Option<ChosenStyle>,
    /// When the request must be answered.
    pub deadline: Instant,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Reranked {
    /// What became of the re-ranking.
    pub outcome: Outcome,
    /// Logits of the legal moves, where they differ from the prior's.
    pub logits: Option<Vec<f32>>,
    /// What an engine says of the candidates.
    pub evidence: Option<Evidence>,
    /// Name of the style that was applied.
    pub style: Option<String>,
    /// What the caller should know of it, in words.
    pub notes: Vec<String>,
    /// The wait for an engine, if one was asked.
    pub engine: Option<Duration>,
    /// The re-ranker's queue and run, if it ran.
    pub rerank: Option<Duration>,
}

/// What an engine says of the candidates.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The candidates.
    pub candidates: Candidates,
    /// Their scores.
    pub scored: Scored,
}

impl Evidence {
    /// The scores at the places of the legal moves, of which there are so many.
    pub fn placed(&self, legal: usize) -> Vec<Option<Score>> {
        let mut placed = vec![None; legal];
        for (place, score) in self.candidates.places.iter().zip(&self.scored.scores) {
            if let Some(own) = placed.get_mut(*place) {
                *own = *score;
            }
        }
        placed
    }
}

impl Stage {
    /// As the options say; within a runtime, since names of sidecars are looked up from now on.
    ///
    /// # Errors
    ///
    /// Names the option that cannot be used.
    pub fn new(config: &Config, metrics: RerankMetrics) -> Result<Self> {
        let options = &config.rerank;
        let engines = (!options.engines.is_empty()).then(|| Engines::new(options, metrics.clone())).transpose()?;
        let mode = match options.default_mode() {
            DefaultMode::Off => Mode::Off,
            DefaultMode::Auto => Mode::Auto,
        };
        let (rating, factor) = (options.rerank_rating, options.engine_budget);
        let places = Semaphore::new(config.queue.min(Semaphore::MAX_PERMITS));
        Ok(Stage { shared: Arc::new(Shared { engines, mode, rating, factor, places, metrics }) })
    }

    /// The style that a request asks for.
    ///
    /// # Errors
    ///
    /// [`ServiceError::UnknownStyle`], [`ServiceError::NoReranker`].
    pub fn style(&self, asked: &Asked, kit: &Kit) -> Result<Option<ChosenStyle>, ServiceError> {
        match &asked.style {
            None => Ok(None),
            Some(StyleAsked::Name(name)) => {
                let found =
                    kit.styles.get(name).ok_or_else(|| ServiceError::UnknownStyle(name.chars().take(64).collect()))?;
                Ok(Some(ChosenStyle { name: name.clone(), values: *found }))
            }
            Some(StyleAsked::Vector(_)) if kit.reranker.is_none() => Err(ServiceError::NoReranker),
            Some(StyleAsked::Vector(values)) => Ok(Some(ChosenStyle { name: "vector".to_owned(), values: **values })),
        }
    }

    /// Re-ranks a prediction, or says why not.
    ///
    /// # Errors
    ///
    /// Where evidence is required alone: [`ServiceError::NoEngines`], [`ServiceError::EngineUnavailable`],
    /// [`ServiceError::EngineTooLate`].
    pub async fn rerank(&self, subject: &Subject<'_>) -> Result<Reranked, ServiceError> {
        let candidates = Candidates::of(subject.query.legal.indices(), &subject.prediction.logits);
        let mut reranked = Reranked {
            outcome: Outcome::PriorOnly,
            logits: None,
            evidence: None,
            style: None,
            notes: Vec::new(),
            engine: None,
            rerank: None,
        };
        match self.decide(subject, &candidates)? {
            Decision::Skip(outcome) => reranked.outcome = outcome,
            Decision::Search(engines, plan) => {
                let started = Instant::now();
                let scored = self.search(engines, subject, &candidates, &plan).await;
                let waited = started.elapsed();
                self.shared.metrics.evidence_seconds.observe(waited.as_secs_f64());
                reranked.engine = Some(waited);
                match scored {
                    Ok(scored) => {
                        reranked.evidence = Some(Evidence { candidates: candidates.clone(), scored });
                    }
                    Err(missing) if subject.query.rerank.mode == Some(Mode::Required) => return Err(missing.into()),
                    // The caller's deadline cut the search short, and no engine is to blame.
                    Err(Missing::TooLate) if plan.squeezed => reranked.outcome = Outcome::Deadline,
                    Err(_) => reranked.outcome = Outcome::EngineUnavailable,
                }
            }
        }
        self.apply(subject, &candidates, &mut reranked).await;
        if subject.style.is_some() && reranked.style.is_none() {
            reranked.notes.push("style: not applied".to_owned());
        }
        Ok(reranked)
    }

    /// Counts what became of an answered prediction.
    pub fn count(&self, outcome: Outcome) {
        self.shared.metrics.answered(outcome.label());
    }

    fn decide(&self, subject: &Subject<'_>, candidates: &Candidates) -> Result<Decision<'_>, ServiceError> {
        let Query { legal, situation, rerank: asked, .. } = subject.query;
        let mode = asked.mode.unwrap_or(self.shared.mode);
        let required = mode == Mode::Required;
        if mode == Mode::Off {
            return Ok(Decision::Skip(Outcome::PriorOnly));
        }
        if legal.len() == 1 {
            return Ok(Decision::Skip(Outcome::OneLegalMove));
        }
        let Some(engines) = &self.shared.engines else {
            return if required { Err(ServiceError::NoEngines) } else { Ok(Decision::Skip(Outcome::PriorOnly)) };
        };
        let conditions = &situation.conditions;
        if !required && conditions.mover_rating.is_none_or(|rating| rating < self.shared.rating) {
            return Ok(Decision::Skip(Outcome::BelowRating));
        }
        let allocator = subject.kit.reranker.as_ref().and_then(|reranker| reranker.allocator.as_ref());
        let depth = match allocator {
            Some(allocator) if !required && asked.wish.is_empty() => {
                let history = subject.model.encoding.told(situation).history;
                match allocator.choose(&allocation::features(candidates, legal.len(), history, conditions)) {
                    None => return Ok(Decision::Skip(Outcome::PriorOnly)),
                    depth => depth,
                }
            }
            _ => None,
        };
        let (control, factor) = (conditions.time_control, self.shared.factor);
        let now = Instant::now();
        // A prediction that can do without evidence must not be late for it, however far away its caller is.
        let left = subject.deadline.saturating_duration_since(now);
        let until = now + if required { left } else { left / 2 };
        match Plan::new(&asked.wish, depth, control, factor, now, until) {
            Some(plan) => Ok(Decision::Search(engines, plan)),
            None if required => Err(ServiceError::EngineTooLate),
            None => Ok(Decision::Skip(Outcome::Deadline)),
        }
    }

    async fn search(
        &self,
        engines: &Engines,
        subject: &Subject<'_>,
        candidates: &Candidates,
        plan: &Plan,
    ) -> Result<Scored, Missing> {
        let _place = self.shared.places.try_acquire().map_err(|_| Missing::Unavailable)?;
        let question = Question::of(&subject.query.game, &subject.query.legal, candidates);
        engines.evaluate(&question, plan).await
    }

    /// Runs the re-ranker, where it has something to go by. Its failure leaves the prior's moves.
    async fn apply(&self, subject: &Subject<'_>, candidates: &Candidates, reranked: &mut Reranked) {
        let Some(reranker) = &subject.kit.reranker else { return };
        if subject.query.legal.len() == 1 || (reranked.evidence.is_none() && subject.style.is_none()) {
            return;
        }
        let (prior, model) = (&reranker.metadata.prior, &subject.model.metadata.name);
        let mut row = RerankBatch::default();
        row.push(&Row {
            indices: subject.query.legal.indices(),
            logits: &subject.prediction.logits,
            // Another model's hidden state would mean nothing to it.
            pooled: if prior == model { &subject.prediction.pooled } else { &[] },
            time_control: subject.query.situation.conditions.time_control,
            style: subject.style.as_ref().map(|style| &style.values),
            candidates,
            scores: reranked.evidence.as_ref().map_or(&[], |evidence| &evidence.scored.scores),
        });
        let started = Instant::now();
        let Ok(residuals) = reranker.runner.residuals(row, subject.deadline).await else {
            self.shared.metrics.run_failed("unanswered");
            reranked.notes.push("re-ranker: no answer in time, the moves are the prior's".to_owned());
            return;
        };
        let mut logits = subject.prediction.logits.to_vec();
        candidates.apply(&mut logits, &residuals);
        reranked.logits = Some(logits);
        reranked.style = subject.style.as_ref().map(|style| style.name.clone());
        reranked.rerank = Some(started.elapsed());
        if prior != model {
            reranked.notes.push(format!("re-ranker: learnt on the moves of `{prior}`, not of `{model}`"));
        }
        if reranked.evidence.is_some() {
            reranked.outcome = Outcome::Applied;
        }
    }
}

/// Whether a search is begun.
enum Decision<'a> {
    /// No, and why.
    Skip(Outcome),
    /// Yes, and how.
    Search(&'a Engines, Plan),
}

impl From<Missing> for ServiceError {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::Unavailable => ServiceError::EngineUnavailable,
            Missing::TooLate => ServiceError::EngineTooLate,
        }
    }
}
