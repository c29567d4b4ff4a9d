//! Drawing of a traffic matrix with clusters.

use std::error::Error;

use counterfoil::Rank;
use counterfoil_protocols::cluster::Clusters;
use plotters::prelude::{
    BLACK, Color, DrawingBackend, IntoDrawingArea, IntoFont, RGBColor, Rectangle, SVGBackend, ShapeStyle, TextStyle,
    WHITE,
};
use plotters::style::FontTransform;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::matrix::{ColourScale, Strip, TrafficMatrix};

/// Minimum side of the matrix in pixels.
const SIDE: u32 = 512;
/// Margins in pixels.
const LEFT: i32 = 64;
const TOP: i32 = 48;
const RIGHT: i32 = 200;
const BOTTOM: i32 = 56;

const CLUSTER: RGBColor = RGBColor(200, 30, 30);
/// Scales for unlogged messages, and for logged ones.
const PLAIN: ColourScale = ColourScale(RGBColor(190, 213, 236), RGBColor(8, 48, 107));
const LOGGED: ColourScale = ColourScale(RGBColor(253, 216, 170), RGBColor(166, 64, 3));

/// Picture contents.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) title: String,
    /// Name of the quantity.
    pub(super) by: &'static str,
    pub(super) ranks: u32,
    pub(super) traffic: TrafficMatrix,
    pub(super) clusters: Clusters,
}

impl Picture {
    /// Renders the picture as SVG.
    pub(super) fn draw(&self) -> Result<String, Box<dyn Error>> {
        let mut svg = String::new();
        {
            let side = (self.side() as i32, self.side() as i32);
            let size = ((LEFT + side.0 + RIGHT) as u32, (TOP + side.1 + BOTTOM) as u32);
            let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            let text = |size: i32| TextStyle::from(("sans-serif", size).into_font()).color(&BLACK);
            let at = |horizontal, vertical| Pos::new(horizontal, vertical);
            area.fill(&WHITE)?;
            let title = text(17).pos(at(HPos::Left, VPos::Center));
            area.draw_text(&self.title, &title, (LEFT, TOP / 2))?;

            for (sender, from, to, colour) in self.strips() {
                area.draw(&Rectangle::new([self.corner(from, sender + 1), self.corner(to, sender)], colour.filled()))?;
            }
            let frame = ShapeStyle::from(&BLACK).stroke_width(1);
            area.draw(&Rectangle::new([self.corner(0, self.ranks), self.corner(self.ranks, 0)], frame))?;

            let ticks = text(12);
            for rank in (0..=self.ranks).step_by((self.ranks as usize / 8).max(1)) {
                let (x, y) = self.corner(rank, rank);
                area.draw_text(&rank.to_string(), &ticks.pos(at(HPos::Center, VPos::Top)), (x, TOP + side.1 + 6))?;
                area.draw_text(&rank.to_string(), &ticks.pos(at(HPos::Right, VPos::Center)), (LEFT - 6, y))?;
            }
            let middle = TOP + side.1 / 2;
            area.draw_text(
                "receiver",
                &text(14).pos(at(HPos::Center, VPos::Top)),
                (LEFT + side.0 / 2, TOP + side.1 + 26),
            )?;
            let upright = text(14).transform(FontTransform::Rotate270).pos(at(HPos::Center, VPos::Center));
            area.draw_text("sender", &upright, (LEFT - 44, middle))?;

            self.draw_clusters(&area, &text(12).color(&CLUSTER).pos(at(HPos::Left, VPos::Center)))?;
            self.draw_legend(&area, &text(12).pos(at(HPos::Left, VPos::Center)))?;
            area.present()?;
        }
        Ok(svg)
    }

    /// Draws a square around each run of consecutive ranks in a cluster, labelled with its epoch.
    fn draw_clusters<B: DrawingBackend>(
        &self,
        area: &plotters::drawing::DrawingArea<B, plotters::coord::Shift>,
        label: &TextStyle<'_>,
    ) -> Result<(), Box<dyn Error>>
    where
        B::ErrorType: 'static,
    {
        let ranks: Vec<u32> = (0..self.ranks).collect();
        for cluster in ranks.chunk_by(|&one, &next| self.cluster(one) == self.cluster(next)) {
            let [Some(&first), Some(&last)] = [cluster.first(), cluster.last()] else { continue };
            let square = [self.corner(first, last + 1), self.corner(last + 1, first)];
            area.draw(&Rectangle::new(square, ShapeStyle::from(&CLUSTER).stroke_width(2)))?;
            let (_, y) = self.corner(first, last + 1);
            let (x, below) = self.corner(self.ranks, first);
            if let Some(epoch) = self.clusters.epoch_of(Rank(first)).filter(|_| below - y >= 14) {
                area.draw_text(&format!("epoch {}", epoch.0), label, (x + 8, (y + below) / 2))?;
            }
        }
        Ok(())
    }

    /// Draws both colour scales with their lower and upper end.
    fn draw_legend<B: DrawingBackend>(
        &self,
        area: &plotters::drawing::DrawingArea<B, plotters::coord::Shift>,
        label: &TextStyle<'_>,
    ) -> Result<(), Box<dyn Error>>
    where
        B::ErrorType: 'static,
    {
        let (x, top) = (LEFT + self.side() as i32 + 84, TOP + 60);
        for (column, scale) in (0..).zip([PLAIN, LOGGED]) {
            scale.draw(area, (x + column * 22, top), 18)?;
        }
        let (lowest, largest) = self.traffic.range();
        let words = [("blue: not logged", TOP + 4), ("brown: logged", TOP + 20), (self.by, TOP + 46)];
        for (text, y) in words {
            area.draw_text(text, label, (x, y))?;
        }
        area.draw_text(&largest.to_string(), label, (x + 46, top + 6))?;
        area.draw_text(&lowest.to_string(), label, (x + 46, top + ColourScale::HEIGHT - 6))?;
        Ok(())
    }

    fn strips(&self) -> Vec<Strip> {
        self.traffic.strips(|sender, receiver, position| {
            let [from, to] = [sender, receiver].map(|rank| self.clusters.epoch_of(Rank(rank)));
            if from < to { LOGGED } else { PLAIN }.at(position)
        })
    }

    fn cluster(&self, rank: u32) -> Option<u32> {
        self.clusters.cluster_of(Rank(rank))
    }

    /// Returns a cell's side in pixels.
    fn cell(&self) -> u32 {
        SIDE.div_ceil(self.ranks.max(1))
    }

    fn side(&self) -> u32 {
        self.cell() * self.ranks
    }

    /// Returns a cell's lower left corner; rank 0 is at the lower left.
    fn corner(&self, receiver: u32, sender: u32) -> (i32, i32) {
        (LEFT + (receiver * self.cell()) as i32, TOP + (self.side() - sender * self.cell()) as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_cells_of_one_colour_are_one_strip_and_logged_messages_have_another_colour() {
        let pairs = vec![(0, 1, 5), (0, 2, 5), (0, 3, 5), (3, 0, 5), (3, 1, 5), (3, 2, 5)];
        let clusters = Clusters::blocks(4, 2).unwrap();
        let picture =
            Picture { title: String::new(), by: "messages", ranks: 4, traffic: TrafficMatrix::new(pairs), clusters };
        let [plain, logged] = [PLAIN.1, LOGGED.1];
        assert_eq!(picture.strips(), [(0, 1, 2, plain), (0, 2, 4, logged), (3, 0, 3, plain)]);
        assert_eq!((picture.corner(0, 0), picture.corner(4, 4)), ((LEFT, TOP + 512), (LEFT + 512, TOP)));
    }
}
