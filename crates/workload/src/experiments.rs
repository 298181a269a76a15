//! The published experiments as scenarios, with counts for one machine.

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// The scenario's text.
    pub toml: &'static str,
}

macro_rules! experiment {
    ($name:literal) => {
        Experiment {
            name: $name,
            toml: include_str!(concat!("../scenarios/", $name, ".toml")),
        }
    };
}

/// All of them. The files say what was published.
pub const EXPERIMENTS: [Experiment; 6] = [
    experiment!("dstream-sharing"),
    experiment!("lstream-sharing"),
    experiment!("dstream-feedback"),
    experiment!("lstream-feedback"),
    experiment!("generic-broadcast"),
    experiment!("generic-gather"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Text;
    use crate::plan::Plan;
    use crate::scenario::Scenario;

    #[test]
    fn each_sends_all_its_messages_in_whole_batches() {
        for Experiment { name, toml } in EXPERIMENTS {
            let scenario = Scenario::from_toml(Text {
                file: name,
                text: toml,
            })
            .unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(scenario.name, name);
            assert_eq!(scenario.runs().len(), 7 * 3);
            for run in scenario.runs() {
                let plan = Plan::new(&scenario, run, 1, None).unwrap();
                let messages = scenario.messages_of(run.consumers).unwrap();
                let copies = scenario.pattern.copies(run.consumers);
                assert_eq!(plan.deliveries, Some(messages * copies), "{name}: {run:?}");
            }
        }
    }
}
