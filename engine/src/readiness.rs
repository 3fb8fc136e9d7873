//! Whether requests are served, told alike by health service, `/ready` and metrics.

use tonic_health::{ServingStatus, server::HealthReporter};

use crate::metrics::Metrics;

/// Names under which health is asked for.
const SERVICES: [&str; 2] = ["", "zeitnot.engine.v1.EngineService"];

/// Tells the world whether requests are served.
#[derive(Clone)]
pub struct Readiness {
    health: HealthReporter,
    metrics: Metrics,
}

impl Readiness {
    /// Starts as not ready.
    pub async fn new(health: HealthReporter, metrics: Metrics) -> Self {
        let readiness = Readiness { health, metrics };
        readiness.set(false).await;
        readiness
    }

    /// Changes the state everywhere.
    pub async fn set(&self, ready: bool) {
        self.metrics.ready.set(i64::from(ready));
        let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in SERVICES {
            self.health.set_service_status(service, status).await;
        }
    }
}
