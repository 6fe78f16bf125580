//! Output of another flow node, as a field of a payload.
//!
//! The enqueued payload contains a placeholder that names the node. The store replaces the placeholder with the output before the
//! dependent job becomes ready.

use std::{cell::RefCell, fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::Error as _,
    ser::{Error as _, SerializeStruct as _},
};

use super::failure::{Failure, JobResult};

/// Output of a [`Flow`](crate::flow::Flow) node, as a field in the payload of a dependent node. Created by
/// [`Node::output`](crate::flow::Node::output).
///
/// In a handler, the field holds the value. The value is missing if the node's job did not complete and the dependent node runs anyway
/// ([`IfDead::Continue`](crate::flow::IfDead::Continue), or [`Node::on_dead`](crate::flow::Node::on_dead)).
///
/// ```
/// # use queue_core::{Context, Handler, JobResult, flow::NodeOutput, job};
/// #[job]
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Parse {
///     page: NodeOutput<String>,
/// }
///
/// impl Handler for Parse {
///     async fn run(self, _: &Context) -> JobResult {
///         let page: &String = self.page.value()?; // a terminal failure if there is none
///         println!("{} bytes", page.len());
///         Ok(())
///     }
/// }
///
/// let in_a_test = Parse { page: NodeOutput::given("<p>".to_owned()) };
/// assert_eq!(in_a_test.page.get().map(String::as_str), Some("<p>"));
/// ```
#[derive(Clone)]
pub struct NodeOutput<T> {
    /// Name of the node that produces the output.
    node: Arc<str>,
    state: OutputState<T>,
}

#[derive(Clone)]
enum OutputState<T> {
    /// The output is not known, because the flow has not been enqueued yet.
    Pending(NodeRef),
    Value(T),
    /// The node ended in this state, without an output.
    Ended(String),
}

/// Reference to a node of a flow that has not been enqueued yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeRef {
    pub(crate) flow: u64,
    pub(crate) node: usize,
}

thread_local! {
    /// References to nodes found so far in the payload that is being encoded. `None` outside of [`collect_node_refs`].
    static NODE_REFS: RefCell<Option<Vec<NodeRef>>> = const { RefCell::new(None) };
}

/// Calls `encode`. Returns its result and the references to nodes in the encoded payload.
pub(crate) fn collect_node_refs<R>(encode: impl FnOnce() -> R) -> (R, Vec<NodeRef>) {
    /// Guard that ends the collection of references when dropped, even if `encode` panics.
    struct ResetOnDrop;
    impl Drop for ResetOnDrop {
        fn drop(&mut self) {
            NODE_REFS.with_borrow_mut(|places| *places = None);
        }
    }
    NODE_REFS.with_borrow_mut(|places| *places = Some(Vec::new()));
    let _reset = ResetOnDrop;
    let given = encode();
    (given, NODE_REFS.with_borrow_mut(Option::take).unwrap_or_default())
}

impl<T> NodeOutput<T> {
    /// Creates the output of a node that completed with `value`, for tests of a handler.
    pub fn given(value: T) -> Self {
        Self { node: Arc::from(""), state: OutputState::Value(value) }
    }

    /// Creates the output of a node that ended in `state` without a value, for tests of a handler.
    pub fn ended_as(state: impl Into<String>) -> Self {
        Self { node: Arc::from(""), state: OutputState::Ended(state.into()) }
    }

    pub(crate) fn pending(node: Arc<str>, place: NodeRef) -> Self {
        Self { node, state: OutputState::Pending(place) }
    }

    /// Returns the value. Returns `None` if the node's job did not complete, or if the flow has not been enqueued yet.
    pub fn get(&self) -> Option<&T> {
        if let OutputState::Value(value) = &self.state { Some(value) } else { None }
    }

    /// Returns the value.
    ///
    /// # Errors
    /// Returns a terminal failure if there is no value, because a retry would not find a value either.
    pub fn value(&self) -> JobResult<&T> {
        self.get().ok_or_else(|| self.missing())
    }

    /// Returns the value and consumes `self`.
    ///
    /// # Errors
    /// Returns the same failure as [`value`](Self::value).
    pub fn into_value(self) -> JobResult<T> {
        let missing = self.missing();
        if let OutputState::Value(value) = self.state { Ok(value) } else { Err(missing) }
    }

    /// Returns the final state of the node's job if the job did not complete: `dead`, `cancelled`, `expired`, or `gone` if the job was
    /// discarded. Returns `None` if the job completed, or if the flow has not been enqueued yet.
    pub fn ended(&self) -> Option<&str> {
        if let OutputState::Ended(state) = &self.state { Some(state) } else { None }
    }

    fn missing(&self) -> Failure {
        Failure::terminal(match &self.state {
            OutputState::Ended(state) => format!("the node `{}` has no output: it is {state}", self.node),
            _ => format!("the node `{}` has no output yet", self.node),
        })
    }
}

impl<T> fmt::Debug for NodeOutput<T> {
    /// Omits the value because it may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            OutputState::Pending(_) => "pending",
            OutputState::Value(_) => "set",
            OutputState::Ended(state) => state,
        };
        write!(f, "NodeOutput({}: {state})", self.node)
    }
}

impl<T: Serialize> Serialize for NodeOutput<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("NodeOutput", 1 + usize::from(!matches!(self.state, OutputState::Pending(_))))?;
        fields.serialize_field("$of", &*self.node)?;
        match &self.state {
            OutputState::Value(value) => fields.serialize_field("was", value)?,
            OutputState::Ended(state) => fields.serialize_field("ended", state)?,
            OutputState::Pending(place) => NODE_REFS.with_borrow_mut(|places| match places {
                Some(places) => {
                    places.push(*place);
                    Ok(())
                }
                None => Err(S::Error::custom("the output of a node is known only in its flow; add this job to that flow")),
            })?,
        }
        fields.end()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for NodeOutput<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(bound = "T: Deserialize<'de>")]
        struct StoredOutput<T> {
            #[serde(rename = "$of")]
            node: String,
            // The `Option` distinguishes `null`, which is a valid value, from a missing field.
            #[serde(default = "none", deserialize_with = "some")]
            was: Option<T>,
            ended: Option<String>,
        }
        let StoredOutput { node, was, ended } = StoredOutput::deserialize(deserializer)?;
        let state = match (was, ended) {
            (Some(value), _) => OutputState::Value(value),
            (None, Some(state)) => OutputState::Ended(state),
            (None, None) => return Err(D::Error::custom(format!("the output of the node `{node}` was not filled in"))),
        };
        Ok(Self { node: node.into(), state })
    }
}

fn none<T>() -> Option<T> {
    None
}

fn some<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip_and_references_need_a_flow() {
        for text in [r#"{"$of":"a","was":null}"#, r#"{"$of":"a","was":7}"#, r#"{"$of":"a","ended":"dead"}"#] {
            let of: NodeOutput<Option<u32>> = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&of).unwrap(), text);
            assert_eq!(of.value().is_ok(), of.ended().is_none());
        }
        assert!(serde_json::from_str::<NodeOutput<u32>>(r#"{"$of":"a"}"#).unwrap_err().to_string().contains("was not filled in"));
        let place = NodeRef { flow: 1, node: 2 };
        let of = NodeOutput::<u32>::pending("a".into(), place);
        assert!(serde_json::to_string(&of).is_err());
        let (text, places) = collect_node_refs(|| serde_json::to_string(&of).unwrap());
        assert_eq!((text.as_str(), places), (r#"{"$of":"a"}"#, vec![place]));
        assert!(of.value().is_err() && of.into_value().is_err());
    }
}
