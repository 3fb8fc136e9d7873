//! The gRPC services.

use std::{future::Future, sync::Arc, time::Instant};

use arc_swap::ArcSwap;
use tonic::{Code, Request, Response, Status};
use tracing::Instrument;
use zeitnot_encoding::Batch;
use zeitnot_proto::v1::{
    GetModelRequest, GetModelResponse, ListModelsRequest, ListModelsResponse, PredictRequest, PredictResponse,
    model_service_server::ModelService, prediction_service_server::PredictionService,
};

use crate::{config::Config, deadline, error::ServiceError, models::Models, wire};

/// Answers requests.
#[derive(Clone)]
pub struct Service {
    models: Arc<ArcSwap<Models>>,
    config: Arc<Config>,
}

impl Service {
    /// A service over models that may still be loading.
    pub fn new(models: Arc<ArcSwap<Models>>, config: Arc<Config>) -> Self {
        Service { models, config }
    }

    async fn predict(&self, request: Request<PredictRequest>) -> Result<PredictResponse, ServiceError> {
        let deadline = deadline::of(request.metadata(), self.config.max_deadline());
        let query = wire::query(request.into_inner(), self.config.max_moves)?;
        let model = self.models.load().get(&query.model)?;
        let span = tracing::Span::current();
        span.record("model", model.metadata.name.as_str());
        if let Some(over) = query.game.over() {
            return Ok(wire::over(&query, over, &model));
        }
        let input = Batch::of(model.encoding, [&query.situation]);
        let reply = model.batcher.submit(input, deadline).await?;
        span.record("queue_ms", reply.queue.as_secs_f64() * 1e3);
        span.record("inference_ms", reply.inference.as_secs_f64() * 1e3);
        Ok(wire::response(&query, &reply, &model))
    }

    /// Logs a request; [`crate::counting`] counts it.
    async fn observe<T>(
        &self,
        method: &'static str,
        answer: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<Response<T>, Status> {
        let arrived = Instant::now();
        let (model, queue_ms, inference_ms) = (tracing::field::Empty, tracing::field::Empty, tracing::field::Empty);
        let span = tracing::info_span!("request", id = request_id(), method, model, queue_ms, inference_ms);
        let result = answer.instrument(span.clone()).await.map_err(Status::from);
        let _entered = span.enter();
        let code = result.as_ref().err().map_or(Code::Ok, Status::code);
        let took = arrived.elapsed().as_secs_f64() * 1e3;
        match &result {
            Ok(_) => tracing::debug!(took_ms = took, "answered"),
            Err(status) => tracing::info!(took_ms = took, ?code, message = status.message(), "failed"),
        }
        result.map(Response::new)
    }
}

#[tonic::async_trait]
impl PredictionService for Service {
    async fn predict(&self, request: Request<PredictRequest>) -> Result<Response<PredictResponse>, Status> {
        self.observe("Predict", Service::predict(self, request)).await
    }
}

#[tonic::async_trait]
impl ModelService for Service {
    async fn list_models(&self, _: Request<ListModelsRequest>) -> Result<Response<ListModelsResponse>, Status> {
        let models = self.models.load();
        let list = || -> Result<ListModelsResponse, ServiceError> {
            models.get("")?; // Before the models are loaded there is nothing to list, which is not an empty list.
            let described = models.all().iter().enumerate().map(|(number, model)| wire::model(model, number == 0));
            Ok(ListModelsResponse { models: described.collect() })
        };
        self.observe("ListModels", async { list() }).await
    }

    async fn get_model(&self, request: Request<GetModelRequest>) -> Result<Response<GetModelResponse>, Status> {
        let models = self.models.load();
        let describe = |name: &str| -> Result<GetModelResponse, ServiceError> {
            let found = models.get(name)?;
            let is_default = models.all().first().is_some_and(|first| Arc::ptr_eq(first, &found));
            Ok(GetModelResponse { model: Some(wire::model(&found, is_default)) })
        };
        self.observe("GetModel", async { describe(&request.get_ref().name) }).await
    }
}

/// A number that names a request in this process's logs.
fn request_id() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
