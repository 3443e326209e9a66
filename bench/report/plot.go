// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The size of all pictures, and of the labels beside them.
const (
	plotWidth   = 8.5 * vg.Inch
	plotHeight  = 3.2 * vg.Inch
	legendWidth = 1.5 * vg.Inch
)

// colours maps each variant to its colour, which is the same in every picture. All
// other curves use the colours of more in turn.
var (
	colours = map[string]color.Color{
		"host":       color.Gray{Y: 0x70},
		"host+mptcp": color.Gray{Y: 0xb0},
		"library":    color.RGBA{R: 0x1f, G: 0x77, B: 0xb4, A: 0xff},
		"preload":    color.RGBA{R: 0x2c, G: 0xa0, B: 0x2c, A: 0xff},
		"supervise":  color.RGBA{R: 0xff, G: 0x7f, B: 0x0e, A: 0xff},
		"lkl-4.9":    color.RGBA{R: 0x8c, G: 0x56, B: 0x4b, A: 0xff},
	}
	more = []color.Color{
		color.RGBA{R: 0x1f, G: 0x77, B: 0xb4, A: 0xff}, color.RGBA{R: 0xd6, G: 0x27, B: 0x28, A: 0xff}, color.RGBA{R: 0x2c, G: 0xa0, B: 0x2c, A: 0xff},
		color.RGBA{R: 0x94, G: 0x67, B: 0xbd, A: 0xff}, color.RGBA{R: 0xff, G: 0x7f, B: 0x0e, A: 0xff}, color.RGBA{R: 0x17, G: 0xbe, B: 0xcf, A: 0xff},
	}
)

func colour(name string, i int) color.Color {
	if c, ok := colours[name]; ok {
		return c
	}
	return more[i%len(more)]
}

// WriteSVG draws a plot.
func WriteSVG(w io.Writer, p Plot) error {
	base := plot.New()
	legend := plot.NewLegend()
	base.Title.Text = p.Caption()
	base.Title.TextStyle.Font.Variant = "Sans"
	legend.TextStyle.Font.Variant, legend.TextStyle.Font.Size = "Sans", vg.Points(10)
	legend.Top, legend.Left = true, true
	for _, a := range []*plot.Axis{&base.X, &base.Y} {
		a.Label.TextStyle.Font.Variant, a.Tick.Label.Font.Variant = "Sans", "Sans"
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = nil, color.Gray{Y: 0xe0}
	base.Add(grid)
	var err error
	switch p := p.(type) {
	case Figure:
		err = p.draw(base, &legend)
	case Bars:
		err = p.draw(base, &legend)
	default:
		err = fmt.Errorf("%T: no such plot", p)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.FileName(), err)
	}
	svg := vgsvg.New(plotWidth, plotHeight)
	c := draw.New(svg)
	base.Draw(draw.Crop(c, 0, -legendWidth, 0, 0))
	legend.Draw(draw.Crop(c, plotWidth-legendWidth+vg.Points(8), 0, 0, -vg.Points(24)))
	_, err = svg.WriteTo(w)
	return err
}

func (f Figure) draw(p *plot.Plot, legend *plot.Legend) error {
	p.X.Label.Text, p.Y.Label.Text = f.X, f.Y
	if f.LogX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	if f.LogY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	} else {
		p.Y.Min = 0
	}
	drawn := false
	for i, l := range f.Lines {
		var points errorPoints
		for k := range l.X {
			if k >= len(l.Y) || f.LogX && l.X[k] <= 0 || f.LogY && l.Y[k] <= 0 || math.IsNaN(l.Y[k]) {
				continue
			}
			points.add(l.X[k], l.Y[k], at(l.Low, k), at(l.High, k), f.LogY)
		}
		if len(points.XYs) == 0 {
			continue
		}
		drawn = true
		line, dots, err := plotter.NewLinePoints(points.XYs)
		if err != nil {
			return err
		}
		line.Color, line.Width = colour(l.Name, i), vg.Points(1.5)
		dots.Shape, dots.Color, dots.Radius = draw.CircleGlyph{}, line.Color, vg.Points(2)
		p.Add(line)
		if len(points.XYs) <= 40 { // a longer curve is drawn as a line only
			p.Add(dots)
		}
		if err := points.bars(p, line.Color); err != nil {
			return err
		}
		legend.Add(l.Name, line)
	}
	return axes(p, drawn, f.LogX, f.LogY)
}

func (b Bars) draw(p *plot.Plot, legend *plot.Legend) error {
	p.Y.Label.Text, p.Y.Min = b.Y, 0
	var present []Series
	for _, s := range b.Series {
		for _, v := range s.Values {
			if !math.IsNaN(v) {
				present = append(present, s)
				break
			}
		}
	}
	wide := 0.8 / float64(max(len(present), 1))
	for i, s := range present {
		c := colour(s.Name, i)
		var points errorPoints
		var named bool
		for g, v := range s.Values {
			if math.IsNaN(v) {
				continue
			}
			x := float64(g) + (float64(i)-float64(len(present)-1)/2)*wide
			points.add(x, v, at(s.Low, g), at(s.High, g), false)
			r, err := plotter.NewPolygon(plotter.XYs{{X: x - 0.45*wide, Y: 0}, {X: x - 0.45*wide, Y: v}, {X: x + 0.45*wide, Y: v}, {X: x + 0.45*wide, Y: 0}})
			if err != nil {
				return err
			}
			r.Color, r.LineStyle.Width = c, 0
			p.Add(r)
			if !named {
				legend.Add(s.Name, r)
				named = true
			}
		}
		if err := points.bars(p, color.Black); err != nil {
			return err
		}
	}
	p.NominalX(b.Groups...)
	p.X.Min, p.X.Max = -0.5, float64(len(b.Groups))-0.5
	return axes(p, len(present) > 0, false, false)
}

// axes ensures that an axis is not empty.
func axes(p *plot.Plot, drawn, logX, logY bool) error {
	if !drawn {
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 1, 10, 1, 10
	}
	for _, a := range []struct {
		*plot.Axis
		log bool
	}{{&p.X, logX}, {&p.Y, logY}} {
		switch {
		case a.log && a.Max <= a.Min:
			a.Min, a.Max = a.Min/2, a.Max*2
		case a.Max <= a.Min:
			a.Max = a.Min + 1
		}
	}
	return nil
}

// errorPoints are points with their spread.
type errorPoints struct {
	plotter.XYs
	plotter.YErrors
}

func (e *errorPoints) add(x, y, lo, hi float64, log bool) {
	below, above := y-lo, hi-y
	if math.IsNaN(lo) || math.IsNaN(hi) || below < 0 || above < 0 || log && lo <= 0 {
		below, above = 0, 0
	}
	e.XYs = append(e.XYs, plotter.XY{X: x, Y: y})
	e.YErrors = append(e.YErrors, struct{ Low, High float64 }{below, above})
}

func (e *errorPoints) bars(p *plot.Plot, c color.Color) error {
	any := false
	for _, d := range e.YErrors {
		any = any || d.Low > 0 || d.High > 0
	}
	if !any {
		return nil
	}
	bars, err := plotter.NewYErrorBars(e)
	if err != nil {
		return err
	}
	bars.Color = c
	p.Add(bars)
	return nil
}

func at(v []float64, i int) float64 {
	if i < len(v) {
		return v[i]
	}
	return math.NaN()
}
