//! The gateway's own interface: the paths, bodies and answers of S3M's streaming interface, and one URL more in
//! them. Knows nothing of HTTP's bytes; docs/reference/gateway.md is its page, `openapi.json` its description.

mod answers;
mod body;
mod http;
mod routes;
mod who;

use routes::{Operation, PREFIXES};

use crate::clock::Clock;
use crate::instances::{Instances, Refused};
use crate::introspection::Introspection;
use crate::keeper::Instance;
use crate::keys::Keys;
use crate::names::InstanceName;
use crate::options::Limits;
use crate::report::Report;
use crate::way::Ways;
use answers::{Answer, answer, refusal};
use routes::Found;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use who::Holder;

/// How many seconds a project's instance lives, and again from an extension on.
use crate::record::LIFE_SECONDS;

/// One request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `GET`, `POST`, `DELETE`, or any other.
    pub method: &'a str,
    /// The path, as it came.
    pub path: &'a str,
    /// The value of the header `Authorization`.
    pub authorization: Option<&'a str>,
    /// Who asks.
    pub peer: IpAddr,
    /// What follows.
    pub body: &'a [u8],
}

/// The interface.
#[derive(Debug)]
pub struct Interface {
    /// All instances.
    pub instances: Arc<Instances>,
    /// Whose tokens are taken.
    pub keys: Keys,
    /// Who holds tokens of the site.
    pub introspection: Option<Introspection>,
    /// How clients reach instances.
    pub ways: Ways,
    /// The name of the interface's host.
    pub host: String,
    /// Bounds.
    pub limits: Limits,
    /// The time.
    pub clock: Clock,
    /// Lines for the operator.
    pub report: Report,
}

/// Shared by all connections.
#[derive(Debug, Clone)]
pub struct Shared(pub Arc<Interface>);

impl Interface {
    /// Answers a request. Takes any.
    pub async fn handle(&self, request: &Request<'_>) -> Answer {
        match self.answer(request).await {
            Ok(answer) | Err(answer) => answer,
        }
    }

    async fn answer(&self, request: &Request<'_>) -> Result<Answer, Answer> {
        let (operation, kind, name) = match routes::find(request.method, request.path) {
            Found::Operation {
                operation,
                kind,
                name,
            } => (operation, kind, name),
            Found::Method(allowed) => {
                return Err(refusal(405, format!("this path is for {allowed}")));
            }
            Found::Nothing(why) => return Err(refusal(404, why)),
        };
        if operation == Operation::OpenApi {
            return Ok(Answer::text(include_str!("api/openapi.json")));
        }
        let holder = self.holder(request).await?;
        match operation {
            Operation::OpenApi => unreachable!("it was answered above"),
            Operation::Backends => Ok(answer(json!({"backends": routes::KINDS}))),
            Operation::Introspect => Ok(answers::holder(&holder)),
            Operation::Revoke => self.revoke(request, &holder),
            Operation::List => Ok(self.list(kind, &holder)),
            Operation::Provision => self.provision(request, kind, &holder).await,
            Operation::Info => {
                let instance = self.instance(kind, name, &holder)?;
                Ok(answer(answers::info(
                    self,
                    &instance,
                    answers::Secrets::Told,
                )))
            }
            Operation::Extend => {
                let instance = self.instance(kind, name, &holder)?;
                instance.extend().await.map_err(|why| refusal(409, why))?;
                self.note(&holder, "extended", instance.name());
                Ok(answer(answers::info(
                    self,
                    &instance,
                    answers::Secrets::Told,
                )))
            }
            Operation::Delete => {
                let instance = self.instance(kind, name, &holder)?;
                instance.remove().await.map_err(|why| refusal(409, why))?;
                self.note(&holder, "deleted", instance.name());
                // It is decided; its name is free a moment later.
                instance.gone(self.limits.wait).await;
                Ok(answer(json!({"success": true})))
            }
        }
    }

    fn note(&self, holder: &Holder, what: &str, name: &InstanceName) {
        self.report
            .line(format!("instance {name}: {what} by {holder}"));
    }

    /// An instance of the holder's, whom nothing but that is told of.
    fn instance(&self, kind: &str, name: &str, holder: &Holder) -> Result<Arc<Instance>, Answer> {
        let name = InstanceName::new(holder.project(), name).map_err(|why| refusal(400, why))?;
        self.allow(holder, &name)?;
        let found = self.instances.find(&name);
        let found = found.filter(|instance| instance.view().record.kind == kind);
        found.ok_or_else(|| refusal(404, format!("there is no {kind} instance {name}")))
    }

    fn list(&self, kind: &str, holder: &Holder) -> Answer {
        let own = self.instances.of_project(holder.project()).into_iter();
        let own = own.filter(|one| one.view().record.kind == kind);
        let allowed = own.filter(|one| self.allow(holder, one.name()).is_ok());
        let infos: Vec<_> = allowed
            .map(|one| answers::info(self, &one, answers::Secrets::LeftOut))
            .collect();
        answer(json!({"clusters": infos}))
    }

    async fn provision(
        &self,
        request: &Request<'_>,
        kind: &str,
        holder: &Holder,
    ) -> Result<Answer, Answer> {
        let asked = body::parse(request.body, &self.limits).map_err(|why| refusal(400, why))?;
        if let Some(project) = asked.project.filter(|project| project != holder.project()) {
            let project = crate::names::quoted(&project);
            return Err(refusal(
                403,
                format!(
                    "the token is for project {}, not {project}",
                    holder.project()
                ),
            ));
        }
        let name =
            InstanceName::new(holder.project(), &asked.name).map_err(|why| refusal(400, why))?;
        self.allow(holder, &name)?;
        let (instances, made, resources) = (self.instances.clone(), name.clone(), asked.resources);
        let of_kind = kind.to_owned();
        let provisioned =
            tokio::task::spawn_blocking(move || instances.provision(&made, &of_kind, resources));
        let instance = match provisioned.await.expect("provisioning does not panic") {
            Ok(instance) => instance,
            Err(Refused::Taken(why)) => return Err(refusal(409, why)),
            Err(Refused::Full(why)) => return Err(refusal(429, why)),
            Err(Refused::Broken(error)) => {
                self.report
                    .line(format!("instance {name}: not provisioned: {error}"));
                return Err(refusal(
                    500,
                    "the gateway cannot write down what was asked for".to_owned(),
                ));
            }
        };
        self.note(holder, "asked for", &name);
        // It is there; who does not get all of it now asks again.
        let status = match instance.serving(self.limits.wait).await {
            Ok(_) => 200,
            Err(_) => 202,
        };
        let body = answers::info(self, &instance, answers::Secrets::Told);
        Ok(Answer {
            status,
            ..answer(body)
        })
    }

    fn revoke(&self, request: &Request<'_>, holder: &Holder) -> Result<Answer, Answer> {
        let Some(id) = holder.token() else {
            if let (Some(introspection), Some(token)) = (&self.introspection, request.authorization)
            {
                introspection.forget(token);
            }
            return Err(refusal(
                400,
                "the token is the site's: revoke it there".to_owned(),
            ));
        };
        let time = access::UnixTime(self.clock.unix() * 1_000_000_000);
        let revoked = self.keys.revoke(id, &format!("{time} by its holder"));
        revoked.map_err(|error| {
            self.report
                .line(format!("token {id} is not revoked: {error}"));
            refusal(500, "the gateway cannot write that down".to_owned())
        })?;
        self.report
            .line(format!("token {id} is revoked by its holder"));
        Ok(answer(json!({"success": true})))
    }
}

#[cfg(test)]
mod tests;
