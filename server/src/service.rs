//! The gRPC services.

use std::{sync::Arc, time::Instant};

use arc_swap::ArcSwap;
use tonic::{Extensions, Request, Response, Status};
use zeitnot_encoding::Batch;
use zeitnot_proto::v1::{
    GetModelRequest, GetModelResponse, ListModelsRequest, ListModelsResponse, PredictRequest, PredictResponse,
    ReloadModelsRequest, ReloadModelsResponse, model_service_server::ModelService,
    prediction_service_server::PredictionService,
};

use crate::{
    access::Caller,
    cache::{Cache, Key},
    config::Config,
    deadline::Deadline,
    entries::{self, Chosen, Entry},
    error::ServiceError,
    jobs::Reply,
    models::{Model, Models},
    observe::ModelNote,
    reload::Reloader,
    rerank::stage::{Stage, Subject},
    wire::{self, Query},
};

/// Answers requests.
#[derive(Clone)]
pub struct Service {
    models: Arc<ArcSwap<Models>>,
    config: Arc<Config>,
    cache: Cache,
    reloader: Reloader,
    stage: Stage,
}

impl Service {
    /// A service over models that may still be loading.
    pub fn new(
        models: Arc<ArcSwap<Models>>,
        config: Arc<Config>,
        cache: Cache,
        reloader: Reloader,
        stage: Stage,
    ) -> Self {
        Service { models, config, cache, reloader, stage }
    }

    async fn predict(&self, request: Request<PredictRequest>) -> Result<PredictResponse, ServiceError> {
        let (_, extensions, request) = request.into_parts();
        let deadline =
            extensions.get().map_or_else(|| Instant::now() + self.config.max_deadline(), |&Deadline(end)| end);
        let query = wire::query(request, self.config.max_moves)?;
        let served = self.models.load_full(); // Model, re-ranker and styles of one reload.
        let entry = noted(served.get(&query.model)?, &extensions);
        let chosen = entry.choose(&query.situation.conditions).ok_or(ServiceError::Starting)?;
        let style = self.stage.style(&query.rerank, served.kit())?;
        if let Some(over) = query.game.over() {
            return Ok(wire::answer::over(&query, over, &chosen));
        }
        let reply = self.compute(&query, &chosen, deadline).await?;
        let span = tracing::Span::current();
        span.record("queue_ms", reply.queue.as_secs_f64() * 1e3);
        span.record("inference_ms", reply.inference.as_secs_f64() * 1e3);
        span.record("batch_size", reply.batch_size);
        let (prediction, kit) = (&*reply.prediction, served.kit());
        let subject = Subject { query: &query, prediction, model: &chosen.lead, kit, style, deadline };
        let reranked = self.stage.rerank(&subject).await?;
        span.record("rerank_status", reranked.outcome.label());
        if let Some(engine) = reranked.engine {
            span.record("engine_ms", engine.as_secs_f64() * 1e3);
        }
        self.stage.count(reranked.outcome);
        Ok(wire::answer::response(&query, &reply, &reranked, &chosen))
    }

    /// What the chosen model predicts, or a mixture of two.
    async fn compute(&self, query: &Query, chosen: &Chosen, deadline: Instant) -> Result<Reply, ServiceError> {
        let Some((other, weight)) = &chosen.other else { return self.ask(query, &chosen.lead, deadline).await };
        let (lead, other) =
            tokio::try_join!(self.ask(query, &chosen.lead, deadline), self.ask(query, other, deadline))?;
        Ok(entries::mix([(&lead, chosen.weight), (&other, *weight)]))
    }

    /// A prediction of one model that was kept, or a new one.
    async fn ask(&self, query: &Query, model: &Model, deadline: Instant) -> Result<Reply, ServiceError> {
        let input = Batch::of(model.encoding, [&query.situation]);
        let legal = query.legal.indices();
        let key = (self.cache.is_on() || self.config.coalesce).then(|| Key::new(model.id, &input, legal));
        if let Some(prediction) = key.and_then(|key| self.cache.get(&key)) {
            model.metrics.cache_hits.inc();
            return Ok(Reply::kept(prediction));
        }
        model.batcher.submit(input, legal.into(), key, deadline).await
    }

    fn described(&self) -> Vec<zeitnot_proto::v1::Model> {
        let models = self.models.load();
        models.entries().iter().enumerate().map(|(number, entry)| wire::answer::entry(entry, number == 0)).collect()
    }
}

#[tonic::async_trait]
impl PredictionService for Service {
    async fn predict(&self, request: Request<PredictRequest>) -> Result<Response<PredictResponse>, Status> {
        Ok(Response::new(Service::predict(self, request).await?))
    }
}

#[tonic::async_trait]
impl ModelService for Service {
    async fn list_models(&self, _: Request<ListModelsRequest>) -> Result<Response<ListModelsResponse>, Status> {
        self.models.load().get("")?; // Before the models are loaded there is nothing to list, which is not an empty list.
        Ok(Response::new(ListModelsResponse { models: self.described() }))
    }

    async fn get_model(&self, request: Request<GetModelRequest>) -> Result<Response<GetModelResponse>, Status> {
        let models = self.models.load();
        let entry = noted(models.get(&request.get_ref().name)?, request.extensions());
        let is_default = models.entries().first().is_some_and(|first| first.name() == entry.name());
        Ok(Response::new(GetModelResponse { model: Some(wire::answer::entry(entry, is_default)) }))
    }

    async fn reload_models(
        &self,
        request: Request<ReloadModelsRequest>,
    ) -> Result<Response<ReloadModelsResponse>, Status> {
        may_administer(&request)?;
        self.models.load().get("")?;
        let changes = self.reloader.reload().await?;
        let models = self.described();
        Ok(Response::new(ReloadModelsResponse { models, loaded: changes.loaded, removed: changes.removed }))
    }
}

/// What a name stands for, noted for metrics and logs.
fn noted<'a>(entry: &'a Entry, extensions: &Extensions) -> &'a Entry {
    if let Some(note) = extensions.get::<ModelNote>() {
        note.set(entry.name());
    }
    entry
}

/// Whether the caller's key is an administrator's or, without keys, the caller is on the same machine.
fn may_administer<T>(request: &Request<T>) -> Result<(), ServiceError> {
    match request.extensions().get::<Caller>() {
        Some(Caller(client)) if client.admin => Ok(()),
        Some(_) => Err(ServiceError::Forbidden("the key is not an administrator's")),
        None if request.remote_addr().is_some_and(|address| address.ip().to_canonical().is_loopback()) => Ok(()),
        None => Err(ServiceError::Forbidden("without API keys, only callers on the same machine may do this")),
    }
}

#[cfg(test)]
mod tests {
    use tonic::transport::server::TcpConnectInfo;

    use super::*;

    #[test]
    fn without_keys_only_the_same_machine_may_administer() {
        let from = |address: &str| {
            let mut request = Request::new(());
            let remote_addr = Some(address.parse().unwrap());
            request.extensions_mut().insert(TcpConnectInfo { local_addr: None, remote_addr });
            may_administer(&request).is_ok()
        };
        assert!(from("127.0.0.1:1") && from("[::1]:1") && from("[::ffff:127.0.0.1]:1"));
        assert!(!from("10.0.0.1:1") && !from("[2001:db8::1]:1"));
        assert!(may_administer(&Request::new(())).is_err(), "from nobody knows where");
    }
}
