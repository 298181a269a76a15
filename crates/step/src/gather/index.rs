//! Boxes of integers, and which of them a box meets.

use std::ops::ControlFlow;

/// So many boxes are looked through one by one; more are indexed.
pub(super) const SCAN_MAX: usize = 256;
/// So many boxes are in a leaf of the index at most.
const LEAF_MAX: usize = 16;

/// A list of boxes of one number of dimensions. Those without elements meet nothing.
#[derive(Debug, Clone)]
pub(super) struct Boxes {
    dimensions: usize,
    count: usize,
    /// Least index of each, a number each dimension.
    lows: Vec<u64>,
    /// Index behind the greatest of each.
    highs: Vec<u64>,
    tree: Option<Tree>,
}

/// Halves of halves of the boxes, each with the box that holds it.
#[derive(Debug, Clone)]
struct Tree {
    /// Numbers of the boxes that have elements: those of a node stand together.
    order: Vec<u32>,
    nodes: Vec<Node>,
    lows: Vec<u64>,
    highs: Vec<u64>,
}

#[derive(Debug, Clone)]
struct Node {
    first: usize,
    end: usize,
    /// The first of its two halves, which stand together; none of a leaf.
    half: Option<usize>,
}

impl Boxes {
    /// A list of `count` boxes. Both columns have `dimensions` numbers a box.
    pub fn new(dimensions: usize, count: usize, lows: Vec<u64>, highs: Vec<u64>) -> Self {
        debug_assert_eq!([lows.len(), highs.len()], [count * dimensions; 2]);
        let mut boxes = Self {
            dimensions,
            count,
            lows,
            highs,
            tree: None,
        };
        if count > SCAN_MAX && dimensions > 0 {
            boxes.tree = Some(Tree::new(&boxes));
        }
        boxes
    }

    /// Least indices of a box.
    pub fn low(&self, index: usize) -> &[u64] {
        &self.lows[index * self.dimensions..][..self.dimensions]
    }

    /// Indices behind the greatest of a box.
    pub fn high(&self, index: usize) -> &[u64] {
        &self.highs[index * self.dimensions..][..self.dimensions]
    }

    /// Calls `found` with the number of each box that meets the one from `low` to `high`, in any
    /// order, until it breaks.
    pub fn search(
        &self,
        low: &[u64],
        high: &[u64],
        mut found: impl FnMut(usize) -> ControlFlow<()>,
    ) {
        let meets = |index| meet((self.low(index), self.high(index)), (low, high));
        let Some(tree) = &self.tree else {
            let mut met = (0..self.count).filter(|index| meets(*index));
            let _ = met.try_for_each(found);
            return;
        };
        let mut open = vec![0];
        while let Some(index) = open.pop() {
            let node = &tree.nodes[index];
            let at = index * self.dimensions;
            let bounds = (
                &tree.lows[at..at + self.dimensions],
                &tree.highs[at..at + self.dimensions],
            );
            if !meet(bounds, (low, high)) {
                continue;
            }
            if let Some(half) = node.half {
                open.extend([half + 1, half]);
                continue;
            }
            for index in &tree.order[node.first..node.end] {
                let index = *index as usize;
                if meets(index) && found(index).is_break() {
                    return;
                }
            }
        }
    }
}

/// Whether two boxes have an element in common.
fn meet(a: (&[u64], &[u64]), b: (&[u64], &[u64])) -> bool {
    let sides = a.0.iter().zip(a.1).zip(b.0.iter().zip(b.1));
    sides
        .into_iter()
        .all(|((a_low, a_high), (b_low, b_high))| a_low.max(b_low) < a_high.min(b_high))
}

impl Tree {
    fn new(boxes: &Boxes) -> Self {
        let has_elements = |index: &u32| {
            let index = *index as usize;
            let sides = boxes.low(index).iter().zip(boxes.high(index));
            sides.into_iter().all(|(low, high)| low < high)
        };
        let count = u32::try_from(boxes.count).expect("a table has less than 4 GiB");
        let mut tree = Self {
            order: (0..count).filter(has_elements).collect(),
            nodes: Vec::new(),
            lows: Vec::new(),
            highs: Vec::new(),
        };
        tree.nodes.push(Node {
            first: 0,
            end: tree.order.len(),
            half: None,
        });
        let mut next = 0;
        while next < tree.nodes.len() {
            tree.settle(next, boxes);
            next += 1;
        }
        tree
    }

    /// Finds the bounds of a node, and its halves if it is large.
    fn settle(&mut self, node: usize, boxes: &Boxes) {
        let Node { first, end, .. } = self.nodes[node];
        let dimensions = boxes.dimensions;
        let members = &mut self.order[first..end];
        let mut widest = (0, 0);
        for dimension in 0..dimensions {
            let middle = |index: u32| {
                let index = index as usize;
                boxes.low(index)[dimension] / 2 + boxes.high(index)[dimension] / 2
            };
            let (mut low, mut high) = (u64::MAX, 0);
            let (mut left, mut right) = (u64::MAX, 0);
            for index in members.iter() {
                low = low.min(boxes.low(*index as usize)[dimension]);
                high = high.max(boxes.high(*index as usize)[dimension]);
                left = left.min(middle(*index));
                right = right.max(middle(*index));
            }
            self.lows.push(low);
            self.highs.push(high);
            widest = widest.max((right.saturating_sub(left), dimension));
        }
        if members.len() <= LEAF_MAX {
            return;
        }
        let half = members.len() / 2;
        members.select_nth_unstable_by_key(half, |index| {
            let index = *index as usize;
            boxes.low(index)[widest.1] / 2 + boxes.high(index)[widest.1] / 2
        });
        self.nodes[node].half = Some(self.nodes.len());
        for (first, end) in [(first, first + half), (first + half, end)] {
            self.nodes.push(Node {
                first,
                end,
                half: None,
            });
        }
    }
}
