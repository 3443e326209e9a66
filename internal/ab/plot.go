// SPDX-License-Identifier: Apache-2.0

package ab

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// plotForms are the endings of files that Plot knows.
var plotForms = []string{".svg", ".png"}

// CheckPlot says whether a plot can go to a file of that name.
func CheckPlot(path string) error {
	if !slices.Contains(plotForms, strings.ToLower(filepath.Ext(path))) {
		return fmt.Errorf("%q: expected a file that ends in %s", path, strings.Join(plotForms, " or "))
	}
	return nil
}

// Plot writes the times of all variants as boxes, from quartile to quartile with
// the median in between, and each run as a point beside its box.
func (c *Comparison) Plot(path string) error {
	p := plot.New()
	p.Title.Text = strings.Join(c.Command, " ")
	if r := []rune(p.Title.Text); len(r) > 60 {
		p.Title.Text = string(r[:59]) + "…"
	}
	p.Y.Label.Text, p.Y.Min = "seconds", 0
	var names []string
	for i := range c.Variants {
		names = append(names, c.Variants[i].Name)
		m := c.Variants[i].metric("time_s")
		if m == nil { // no run of it went well
			continue
		}
		box, err := plotter.NewBoxPlot(vg.Points(40), float64(i), plotter.Values(m.values))
		if err != nil {
			return err
		}
		points := make(plotter.XYs, len(m.values))
		for k, v := range m.values {
			points[k] = plotter.XY{X: float64(i) + 0.25, Y: v}
		}
		runs, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		runs.Radius = vg.Points(2)
		p.Add(box, runs)
	}
	p.NominalX(names...)
	if err := p.Save(vg.Length(len(names)+1)*1.5*vg.Inch, 4*vg.Inch, path); err != nil {
		return fmt.Errorf("writing the plot: %w", err)
	}
	return nil
}
