//! The RPCs.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout_at;
use tonic::{Code, Request, Response, Status};
use zeitnot_proto::engine::v1::{
    EvaluateCandidatesRequest, EvaluateCandidatesResponse, GetEngineRequest, GetEngineResponse,
    engine_service_server::EngineService,
};

use crate::{
    cache::Cache,
    config::Config,
    deadline::Deadline,
    engines::Engines,
    error::EngineError,
    metrics::{EVALUATE, GET, Metrics},
    wire::{Caps, Question, answer},
};

/// Answers requests.
#[derive(Clone, Debug)]
pub struct Service {
    engines: Arc<Engines>,
    cache: Cache,
    metrics: Metrics,
    caps: Caps,
    /// For a request that says nothing of a deadline.
    limit: Duration,
}

impl Service {
    /// Answers by these engines.
    pub fn new(engines: Arc<Engines>, cache: Cache, metrics: Metrics, config: &Config) -> Self {
        Service { engines, cache, metrics, caps: Caps::of(config), limit: config.max_deadline() }
    }

    async fn evaluate(
        &self,
        request: EvaluateCandidatesRequest,
        deadline: Deadline,
    ) -> Result<EvaluateCandidatesResponse, EngineError> {
        let question = Question::read(request, &self.caps)?;
        let name = || self.engines.info().name;
        if let Some(known) = self.cache.get(&question.key) {
            self.metrics.cache_hits.inc();
            return Ok(answer(&question, &known, true, name()));
        }
        self.metrics.cache_misses.inc_by(u64::from(self.cache.is_on()));
        let mut found = self.engines.evaluate(question.search(), deadline.search).await?;
        found.iterations = Vec::new(); // Nobody asks for them, and they are most of what would be kept.
        let found = Arc::new(found);
        self.cache.insert(question.key.clone(), &found);
        Ok(answer(&question, &found, false, name()))
    }
}

#[tonic::async_trait]
impl EngineService for Service {
    async fn evaluate_candidates(
        &self,
        request: Request<EvaluateCandidatesRequest>,
    ) -> Result<Response<EvaluateCandidatesResponse>, Status> {
        let counted = self.metrics.request(EVALUATE);
        let noted = request.extensions().get::<Deadline>().copied();
        let deadline = noted.unwrap_or_else(|| Deadline::of(request.metadata(), self.limit));
        // Dropped with the request or at the end of its time, a search is stopped.
        let answer = timeout_at(deadline.answer, self.evaluate(request.into_inner(), deadline)).await;
        match answer.unwrap_or(Err(EngineError::Deadline)) {
            Ok(answer) => {
                counted.ended(Code::Ok);
                Ok(Response::new(answer))
            }
            Err(error) => {
                let status = Status::from(error);
                counted.ended(status.code());
                tracing::debug!(code = ?status.code(), message = status.message(), "refused");
                Err(status)
            }
        }
    }

    async fn get_engine(&self, _: Request<GetEngineRequest>) -> Result<Response<GetEngineResponse>, Status> {
        let counted = self.metrics.request(GET);
        let (info, stats) = (self.engines.info(), self.engines.stats());
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        counted.ended(Code::Ok);
        Ok(Response::new(GetEngineResponse {
            name: info.name,
            author: info.author,
            options: self.engines.options().iter().cloned().collect(),
            processes: count(stats.processes),
            ready: count(stats.ready),
            waiting: count(stats.waiting),
            restarts: stats.restarts,
            searches_candidates_together: info.together,
        }))
    }
}
