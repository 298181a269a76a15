//! The status of a server, of which each shard says its own part.

use crate::error::ClientError;
use serde_json::Value;
use wire::DirectoryId;

/// Lists whose rows say which shard they are of.
const LISTS: [&str; 2] = ["sessions", "topics"];

/// The status of all shards, where the first one has said `first`: its own, with the lists of the others appended and the
/// rest of what they say among its `nodes`. `ask` asks the others, all at once. A shard that does not answer, or is away, is
/// there with its `failure`. Likewise of the servers of a cluster.
pub(crate) fn whole(
    first: String,
    ask: impl FnOnce(&[DirectoryId]) -> Vec<Result<String, ClientError>>,
) -> Result<String, ClientError> {
    let mut status = parse(&first)?;
    let nodes = status
        .get_mut("nodes")
        .and_then(|nodes| nodes.as_array_mut());
    let nodes = nodes.map(std::mem::take).unwrap_or_default();
    if nodes.is_empty() {
        return Ok(first);
    }
    let known: Vec<Result<DirectoryId, &str>> = nodes.iter().map(whom_to_ask).collect();
    let wanted: Vec<DirectoryId> = known.iter().flatten().copied().collect();
    let mut answers = ask(&wanted).into_iter();
    let mut said = Vec::new();
    for (mut node, asked) in nodes.into_iter().zip(known) {
        let answer = match asked {
            Err(why) => Err(why.to_owned()),
            Ok(_) => match answers.next() {
                None => Err("it was not asked".to_owned()),
                Some(answer) => answer
                    .and_then(|text| parse(&text))
                    .map_err(|error| error.to_string()),
            },
        };
        let Some(entry) = node.as_object_mut() else {
            continue;
        };
        match answer {
            Ok(mut other) => {
                let shard = entry.get("node").cloned().unwrap_or_default();
                for list in LISTS {
                    move_rows(list, &shard, &mut other, &mut status);
                }
                if let Some(other) = other.as_object_mut() {
                    other.remove("nodes");
                    let endpoints = entry.remove("endpoints").unwrap_or_default();
                    entry.append(other);
                    entry.insert("endpoints".to_owned(), endpoints);
                }
            }
            Err(why) => drop(entry.insert("failure".to_owned(), why.into())),
        }
        said.push(node);
    }
    if let Some(status) = status.as_object_mut() {
        status.insert("nodes".to_owned(), said.into());
    }
    Ok(status.to_string())
}

/// The data directory of another node, by which it is asked; or why it is not.
fn whom_to_ask(node: &Value) -> Result<DirectoryId, &'static str> {
    if node.get("state").and_then(Value::as_str) == Some("away") {
        return Err("it is away: the others have not reached it for a while");
    }
    let text = node.get("directory").and_then(Value::as_str);
    let id = text.and_then(|text| u128::from_str_radix(text, 16).ok());
    id.map(DirectoryId).ok_or("it has not started yet")
}

/// Moves the rows of a list, which are of this shard.
fn move_rows(list: &str, shard: &Value, from: &mut Value, to: &mut Value) {
    let rows = from.as_object_mut().and_then(|from| from.remove(list));
    let Some(Value::Array(mut rows)) = rows else {
        return;
    };
    for row in rows.iter_mut().filter_map(Value::as_object_mut) {
        row.insert("node".to_owned(), shard.clone());
    }
    if let Some(there) = to.get_mut(list).and_then(Value::as_array_mut) {
        there.append(&mut rows);
    }
}

fn parse(text: &str) -> Result<Value, ClientError> {
    serde_json::from_str(text).map_err(|error| ClientError::Damaged {
        what: format!("the status is no JSON: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_status_of_one_shard_is_as_it_came() {
        let first = r#"{"nodes":[],"topics": [ ]}"#;
        let asked = whole(first.to_owned(), |_| unreachable!("there is no other"));
        assert_eq!(asked.unwrap(), first);
    }

    #[test]
    fn what_is_no_status_is_an_error_or_as_it_came() {
        let ask = |_: &[DirectoryId]| vec![Ok("[1]".to_owned()), Ok("{".to_owned())];
        assert!(whole("no JSON".to_owned(), ask).is_err());
        for strange in ["[]", "7", r#"{"nodes":7}"#, r#"{"nodes":[7,"x",null]}"#] {
            assert!(whole(strange.to_owned(), ask).is_ok(), "{strange}");
        }
        let nodes =
            r#"{"topics":7,"nodes":[{"directory":"1"},{"directory":"2"},{"directory":"no"}]}"#;
        let status = parse(&whole(nodes.to_owned(), ask).unwrap()).unwrap();
        assert_eq!(status["nodes"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn others_are_asked_and_one_that_does_not_answer_is_named() {
        let node = |node: u32, directory: &str| json!({"node": node, "directory": directory, "endpoints": ["tcp://h:1"]});
        let first = json!({
            "node": 0, "nodes": [node(1, "d1"), node(2, "d2"), json!({"node": 3, "directory": null})],
            "topics": [{"name": "a"}], "sessions": [], "counters": {"turn": 1},
        });
        let asked = whole(first.to_string(), |directories| {
            assert_eq!(directories, [DirectoryId(0xd1), DirectoryId(0xd2)]);
            let other = json!({
                "node": 1, "directory": "d1", "nodes": [node(0, "d0")], "counters": {"turn": 7},
                "topics": [{"name": "b"}], "sessions": [{"client": "c"}],
            });
            vec![Ok(other.to_string()), Err(ClientError::Closed)]
        });
        let status: Value = serde_json::from_str(&asked.unwrap()).unwrap();
        assert_eq!(
            status,
            json!({
                "node": 0,
                "topics": [{"name": "a"}, {"name": "b", "node": 1}],
                "sessions": [{"client": "c", "node": 1}],
                "counters": {"turn": 1},
                "nodes": [
                    {"node": 1, "directory": "d1", "endpoints": ["tcp://h:1"], "counters": {"turn": 7}},
                    {
                        "node": 2, "directory": "d2", "endpoints": ["tcp://h:1"],
                        "failure": ClientError::Closed.to_string(),
                    },
                    {"node": 3, "directory": null, "failure": "it has not started yet"},
                ],
            })
        );
    }

    #[test]
    fn a_node_that_is_away_is_not_asked() {
        let first = json!({
            "topics": [],
            "nodes": [
                {"node": 1, "directory": "d1", "state": "away"},
                {"node": 2, "directory": "d2", "state": "serving"},
            ],
        });
        let ask = |wanted: &[DirectoryId]| {
            assert_eq!(wanted, [DirectoryId(0xd2)]);
            vec![Ok(r#"{"topics":[{"name":"t"}]}"#.to_owned())]
        };
        let status = parse(&whole(first.to_string(), ask).unwrap()).unwrap();
        let failure = status["nodes"][0]["failure"].as_str().unwrap();
        assert!(failure.contains("away"), "{failure}");
        assert_eq!(status["topics"][0]["node"], 2);
        assert!(status["nodes"][1]["failure"].is_null());
    }
}
