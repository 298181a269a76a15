//! Which path means what.

/// Where S3M's streaming interface is, now and before.
pub const PREFIXES: [&str; 2] = ["/olcf/open/v1alpha/streaming", "/olcf/v1alpha/streaming"];
/// Where its tokens are.
pub const TOKEN_PREFIXES: [&str; 2] = ["/olcf/open/v1/token/ctls", "/olcf/v1/token/ctls"];
/// Where the description is.
pub const OPENAPI: &str = "/openapi.json";
/// Kinds of instances: by which protocol clients mean to speak to them. Each is a server of Thalweg.
pub const KINDS: [&str; 2] = ["rabbitmq", "thalweg"];

/// What can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Which kinds of instances there are.
    Backends,
    /// Make an instance.
    Provision,
    /// The instances of a project.
    List,
    /// One of them.
    Info,
    /// Delete it.
    Delete,
    /// Count its life anew.
    Extend,
    /// Who the holder of a token is.
    Introspect,
    /// Revoke the token.
    Revoke,
    /// The description of all this.
    OpenApi,
}

/// All routes: method, and path behind the prefix.
pub const ROUTES: &[(&str, &str, Operation)] = &[
    ("GET", "list_backends", Operation::Backends),
    ("POST", "{kind}/provision_cluster", Operation::Provision),
    ("GET", "{kind}/list_clusters", Operation::List),
    ("GET", "{kind}/cluster/{name}", Operation::Info),
    ("DELETE", "{kind}/cluster/{name}", Operation::Delete),
    ("POST", "{kind}/extend/{name}", Operation::Extend),
    ("GET", "introspect", Operation::Introspect),
    ("DELETE", "revoke", Operation::Revoke),
];

/// What a path means.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// This, of an instance of this kind and name, where it is about one.
    Operation {
        /// What is asked for.
        operation: Operation,
        /// Of the path; empty where there is none.
        kind: &'a str,
        /// Of the path; empty where there is none.
        name: &'a str,
    },
    /// Something by other methods.
    Method(String),
    /// Nothing; why not.
    Nothing(String),
}

/// What a request's path means. Takes any.
pub fn find<'a>(method: &str, path: &'a str) -> Found<'a> {
    if path == OPENAPI {
        return match method {
            "GET" => Found::Operation {
                operation: Operation::OpenApi,
                kind: "",
                name: "",
            },
            _ => Found::Method("GET".to_owned()),
        };
    }
    let behind = |prefixes: &[&str]| {
        let rest = prefixes.iter().find_map(|prefix| path.strip_prefix(prefix));
        rest.and_then(|rest| rest.strip_prefix('/'))
    };
    let of_tokens = |operation| matches!(operation, Operation::Introspect | Operation::Revoke);
    let (rest, is_of_tokens) = match (behind(&PREFIXES), behind(&TOKEN_PREFIXES)) {
        (Some(rest), _) => (rest, false),
        (None, Some(rest)) => (rest, true),
        (None, None) => return Found::Nothing("this path is not one of /openapi.json".to_owned()),
    };
    let mut allowed = Vec::new();
    for (by, template, operation) in ROUTES {
        if of_tokens(*operation) != is_of_tokens {
            continue;
        }
        let Some((kind, name)) = fits(template, rest) else {
            continue;
        };
        if *by != method {
            allowed.push(*by);
            continue;
        }
        if !kind.is_empty() && !KINDS.contains(&kind) {
            let kind = crate::names::quoted(kind);
            return Found::Nothing(format!(
                "there are no instances of kind {kind}, but of {}",
                KINDS.join(", ")
            ));
        }
        return Found::Operation {
            operation: *operation,
            kind,
            name,
        };
    }
    match allowed.is_empty() {
        true => Found::Nothing("this path is not one of /openapi.json".to_owned()),
        false => Found::Method(allowed.join(", ")),
    }
}

/// What stands for the kind and the name in a path of this form.
fn fits<'a>(template: &str, path: &'a str) -> Option<(&'a str, &'a str)> {
    let (mut kind, mut name) = ("", "");
    let mut parts = path.split('/');
    for expected in template.split('/') {
        let part = parts.next().filter(|part| !part.is_empty())?;
        match expected {
            "{kind}" => kind = part,
            "{name}" => name = part,
            _ if expected == part => {}
            _ => return None,
        }
    }
    parts.next().is_none().then_some((kind, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_prefixes_mean_the_same_and_nothing_else_means_anything() {
        for prefix in PREFIXES {
            let path = format!("{prefix}/rabbitmq/cluster/run42");
            let found = find("DELETE", &path);
            let expected = Found::Operation {
                operation: Operation::Delete,
                kind: "rabbitmq",
                name: "run42",
            };
            assert_eq!(found, expected);
            assert_eq!(find("POST", &path), Found::Method("GET, DELETE".to_owned()));
            for bad in [
                "",
                "/",
                "/cluster/run42",
                "/rabbitmq/cluster/",
                "/rabbitmq/cluster/a/b",
                "/introspect",
            ] {
                let path = format!("{prefix}{bad}");
                assert!(matches!(find("GET", &path), Found::Nothing(_)), "{path}");
            }
            let path = format!("{prefix}/redis/provision_cluster");
            assert!(matches!(find("POST", &path), Found::Nothing(why) if why.contains("redis")));
        }
        assert!(matches!(find("GET", "/"), Found::Nothing(_)));
        assert!(matches!(
            find("GET", "/olcf/v1/token/ctls/introspect"),
            Found::Operation { .. }
        ));
    }
}
