//! All instances, by the names of their hosts: the routing table.

use crate::error::GatewayError;
use crate::faults::{Fault, planted};
use crate::keeper::{self, Instance, Surroundings};
use crate::names::InstanceName;
use crate::record::{Record, Resources};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, RwLock};

/// Where a connection is to go.
#[derive(Debug)]
pub enum Route {
    /// To the gateway's own interface.
    Api,
    /// To an instance.
    Instance(Arc<Instance>),
    /// Nowhere.
    Unknown,
}

/// Why an instance is not made.
#[derive(Debug)]
pub enum Refused {
    /// The name of its host is another's.
    Taken(String),
    /// There are as many as there may be; of what.
    Full(String),
    /// It cannot be written down.
    Broken(GatewayError),
}

/// All instances.
#[derive(Debug)]
pub struct Instances {
    api: String,
    around: Surroundings,
    /// By the label of their hosts. Locked for a look.
    all: RwLock<BTreeMap<String, Arc<Instance>>>,
    /// Those that are being written down. Locked before `all`, and for a look.
    making: Mutex<BTreeSet<InstanceName>>,
}

impl Instances {
    /// Those that are known from before, taken up again. To be called within a runtime.
    ///
    /// # Errors
    /// If the directory cannot be listed.
    pub fn open(api: String, around: Surroundings) -> Result<Arc<Self>, GatewayError> {
        let (records, strange) = around.directory.records()?;
        for line in strange {
            around.report.line(format!("left alone: {line}"));
        }
        let instances = Arc::new(Self {
            api,
            around,
            all: RwLock::default(),
            making: Mutex::default(),
        });
        for record in records {
            instances.clone().keep(record, false);
        }
        Ok(instances)
    }

    /// Where a connection that asks for this name is to go.
    pub fn route(&self, name: Option<&str>) -> Route {
        let Some(name) = name else {
            return Route::Unknown;
        };
        if name == self.api {
            return Route::Api;
        }
        let label = name.strip_suffix(&self.around.domain);
        let label = label.and_then(|label| label.strip_suffix('.'));
        let all = self.all.read().expect("no holder panics");
        let found = label.and_then(|label| all.get(label));
        let found = match planted(Fault::AnyRoute) {
            true => found.or_else(|| all.values().next()),
            false => found,
        };
        found.cloned().map_or(Route::Unknown, Route::Instance)
    }

    /// One instance.
    pub fn find(&self, name: &InstanceName) -> Option<Arc<Instance>> {
        let all = self.all.read().expect("no holder panics");
        // Another project's may have the same label.
        let found = all.get(&name.label()).filter(|one| one.name() == name);
        found.cloned()
    }

    /// Those of a project, by name.
    pub fn of_project(&self, project: &str) -> Vec<Arc<Instance>> {
        let all = self.all.read().expect("no holder panics");
        let own = all.values().filter(|one| one.name().project() == project);
        own.cloned().collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.read().expect("no holder panics").len()
    }

    /// Makes an instance, and starts it. Durable when it returns.
    ///
    /// # Errors
    /// Says why not.
    pub fn provision(
        self: &Arc<Self>,
        name: &InstanceName,
        kind: &str,
        resources: Resources,
    ) -> Result<Arc<Instance>, Refused> {
        self.reserve(name)?;
        let record = Record::new(name, kind, resources, self.around.clock.unix());
        let kept = self.around.directory.keep(&record);
        let mut making = self.making.lock().expect("no holder panics");
        making.remove(name);
        kept.map_err(Refused::Broken)?;
        let instance = self.clone().keep(record, true);
        drop(making);
        self.around
            .report
            .line(format!("instance {name}: provisioned"));
        Ok(instance)
    }

    /// Takes a name for one that is being made, if there may be one more.
    fn reserve(&self, name: &InstanceName) -> Result<(), Refused> {
        let limits = self.around.limits;
        let mut making = self.making.lock().expect("no holder panics");
        let all = self.all.read().expect("no holder panics");
        let names: Vec<&InstanceName> = all
            .values()
            .map(|one| one.name())
            .chain(making.iter())
            .collect();
        if let Some(other) = names.iter().find(|other| other.label() == name.label()) {
            return Err(Refused::Taken(match *other == name {
                true => format!("there is an instance {name} already"),
                false => format!("the name {} is that of another instance", name.label()),
            }));
        }
        if names.len() >= limits.instances_max {
            let count = names.len();
            return Err(Refused::Full(format!(
                "there are {count} instances, as many as this gateway keeps"
            )));
        }
        let own = names
            .iter()
            .filter(|one| one.project() == name.project())
            .count();
        if own >= limits.project_instances_max {
            return Err(Refused::Full(format!(
                "project {} has {own} instances, as many as a project may have: delete one",
                name.project()
            )));
        }
        making.insert(name.clone());
        Ok(())
    }

    /// Ends all, or leaves them, as the options say.
    pub async fn leave(&self) {
        let all: Vec<_> = self
            .all
            .read()
            .expect("no holder panics")
            .values()
            .cloned()
            .collect();
        let each = all
            .into_iter()
            .map(|one| tokio::spawn(async move { one.leave().await }));
        for task in each.collect::<Vec<_>>() {
            let _ = task.await;
        }
    }

    fn keep(self: Arc<Self>, record: Record, wanted: bool) -> Arc<Instance> {
        let label = record.instance().label();
        let mut all = self.all.write().expect("no holder panics");
        // Whatever ends it waits for the lock, so that it is there before it is removed.
        let (instances, own) = (self.clone(), label.clone());
        let on_end = move || {
            instances
                .all
                .write()
                .expect("no holder panics")
                .remove(&own);
        };
        let instance = keeper::keep(record, wanted, &self.around, on_end);
        all.insert(label, instance.clone());
        instance
    }
}

/// What instances need, for tests of other modules.
#[cfg(test)]
pub fn surroundings(directory: crate::directory::Directory) -> Surroundings {
    Surroundings {
        directory: Arc::new(directory),
        launch: Arc::new(crate::options::Launch {
            program: vec!["true".to_owned()],
            launcher: Vec::new(),
            inside: "127.0.0.1".to_owned(),
            plain: false,
        }),
        domain: "stream.site.org".to_owned(),
        on_ready: None,
        leave_instances: false,
        limits: crate::options::Limits::default(),
        clock: crate::clock::Clock::standing(),
        report: crate::report::Report::new(|_| {}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Directory;
    use crate::faults;

    fn run(test: impl AsyncFn(Arc<Instances>)) {
        let parent = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let directory = Directory::open(parent.path()).unwrap();
            let api = "api.site.org".to_owned();
            test(Instances::open(api, surroundings(directory)).unwrap()).await;
        });
    }

    fn name(project: &str, name: &str) -> InstanceName {
        InstanceName::new(project, name).unwrap()
    }

    #[test]
    fn a_name_leads_to_its_instance_and_any_other_nowhere() {
        run(async |instances| {
            let provision = |name| instances.provision(name, "rabbitmq", Resources::default());
            provision(&name("stf008", "run42")).unwrap();
            let route = |name: &str| instances.route(Some(name));
            assert!(matches!(route("api.site.org"), Route::Api));
            let found = route("stf008-run42.stream.site.org");
            assert!(
                matches!(found, Route::Instance(one) if one.name() == &name("stf008", "run42"))
            );
            let nowhere = || {
                let names = [
                    "stream.site.org",
                    ".stream.site.org",
                    "stf008-run43.stream.site.org",
                    "stf008-run42.site.org",
                    "stf008-run42xstream.site.org",
                    "x.stf008-run42.stream.site.org",
                    "stf008-run42",
                    "localhost",
                ];
                names
                    .iter()
                    .all(|name| matches!(route(name), Route::Unknown))
            };
            assert!(nowhere());
            assert!(matches!(instances.route(None), Route::Unknown));
            assert!(!faults::with(Fault::AnyRoute, nowhere));
        });
    }

    #[test]
    fn two_instances_never_have_one_host_and_nobody_has_too_many() {
        run(async |instances| {
            let provision =
                |one: &InstanceName| instances.provision(one, "rabbitmq", Resources::default());
            provision(&name("a", "b-c")).unwrap();
            // Their labels are the same.
            let error = provision(&name("a-b", "c")).unwrap_err();
            assert!(matches!(error, Refused::Taken(why) if !why.contains("a/b-c")));
            assert!(instances.find(&name("a-b", "c")).is_none());
            assert!(matches!(
                provision(&name("a", "b-c")),
                Err(Refused::Taken(_))
            ));
            for index in 1..8 {
                provision(&name("a", &format!("x{index}"))).unwrap();
            }
            assert!(matches!(provision(&name("a", "x8")), Err(Refused::Full(_))));
            assert_eq!(instances.of_project("a").len(), 8);
            assert_eq!(instances.count(), 8);
        });
    }

    #[test]
    fn an_instance_whose_time_is_over_is_archived() {
        let is_gone = || {
            let parent = tempfile::tempdir().unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let mut around = surroundings(Directory::open(parent.path()).unwrap());
                around.limits.look = std::time::Duration::from_millis(5);
                let clock = around.clock.clone();
                let instances = Instances::open("api.site.org".to_owned(), around).unwrap();
                let run42 = name("stf008", "run42");
                let made = instances
                    .provision(&run42, "rabbitmq", Resources::default())
                    .unwrap();
                clock.pass(crate::record::LIFE_SECONDS - 100);
                assert_eq!(instances.count(), 1);
                clock.pass(100);
                // With the fault planted it never goes.
                let patience = if planted(Fault::NeverExpires) {
                    200
                } else {
                    60_000
                };
                made.gone(std::time::Duration::from_millis(patience)).await;
                instances.find(&run42).is_none()
            })
        };
        assert!(is_gone());
        assert!(!faults::with(Fault::NeverExpires, is_gone));
    }
}
