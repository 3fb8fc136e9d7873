//! Structured logs on standard error, and traces by OTLP when a collector is named.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use opentelemetry::{
    global,
    propagation::Extractor,
    trace::{TraceContextExt, TracerProvider},
};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{Sampler, SdkTracerProvider},
};
use tonic::codegen::http::HeaderMap;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::{Config, LogFormat};

/// Keeps traces flowing. Dropped at the end, it sends what is left.
#[must_use]
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.traces.take().map(|traces| traces.shutdown()) {
            tracing::debug!(%error, "the last traces were not sent");
        }
    }
}

/// Starts logs and traces. Within a runtime, since the exporter needs one.
///
/// # Errors
///
/// When `--log` or `--otlp-endpoint` cannot be used, which [`Config::check`] has seen before.
pub fn start(config: &Config) -> Result<Telemetry> {
    let filter = EnvFilter::try_new(&config.log)?;
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match config.log_format {
        LogFormat::Text => lines.with_filter(filter).boxed(),
        LogFormat::Json => lines.json().with_filter(filter).boxed(),
    };
    let traces = config.otlp_endpoint.as_ref().map(|endpoint| provider(endpoint, config.otlp_sample)).transpose()?;
    let spans = traces.as_ref().map(|traces| {
        // Requests alone; what libraries trace of their own is not what operators ask for.
        let ours = tracing_subscriber::filter::Targets::new().with_target("zeitnot_server", tracing::Level::INFO);
        tracing_opentelemetry::layer().with_tracer(traces.tracer("zeitnot")).with_filter(ours)
    });
    tracing_subscriber::registry().with(lines).with(spans).try_init()?;
    Ok(Telemetry { traces })
}

fn provider(endpoint: &str, share: f64) -> Result<SdkTracerProvider> {
    let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build();
    let exporter = exporter.with_context(|| format!("--otlp-endpoint: cannot use `{endpoint}`"))?;
    global::set_text_map_propagator(TraceContextPropagator::new());
    let resource = Resource::builder().with_service_name("zeitnot").build();
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(share)));
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource);
    Ok(provider.with_sampler(sampler).build())
}

/// Makes a span part of the caller's trace, when its headers name one (`traceparent`).
pub fn follow(span: &Span, headers: &HeaderMap) {
    if !headers.contains_key("traceparent") {
        return;
    }
    let parent = global::get_text_map_propagator(|propagator| propagator.extract(&Headers(headers)));
    if parent.span().span_context().is_valid() {
        let _ = span.set_parent(parent); // Without a collector there are no traces to be part of.
    }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}
