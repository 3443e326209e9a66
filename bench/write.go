// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/lklrun/lklrun/bench/report"
	"github.com/lklrun/lklrun/bench/scenario"
	"github.com/lklrun/lklrun/bench/table"
)

// write writes the results in every requested format.
func (o *options) write(set *table.Set, chosen []scenario.Scenario) error {
	var text bytes.Buffer
	var targets []table.Target
	for _, s := range chosen {
		if len(set.Keys(s.Name)) == 0 {
			continue
		}
		targets = append(targets, s.Targets...)
		fmt.Fprintf(&text, "%s\n", s.Title)
		for _, t := range append(report.Default(set, s.Name), extra(s, set)...) {
			fmt.Fprintln(&text)
			report.Text(&text, t)
		}
		fmt.Fprintln(&text)
	}
	if len(targets) > 0 {
		report.Text(&text, report.Criteria(set, targets))
		fmt.Fprintln(&text)
	}
	fmt.Fprintln(&text, "medians of turns within one run; in brackets the ratio to the host's")
	for _, n := range set.Notes {
		fmt.Fprintln(&text, "not measured:", n)
	}
	for _, s := range chosen {
		limit := s.Budget.Quick
		if set.Info.Form == "full" {
			limit = s.Budget.Full
		}
		if took := set.Info.Seconds[s.Name]; limit > 0 && took > limit.Seconds() {
			fmt.Fprintf(&text, "%s took %.0f s, its budget is %.0f s\n", s.Name, took, limit.Seconds())
		}
	}
	fmt.Print(text.String())
	for name, write := range map[string]func(io.Writer) error{
		"run.json": set.WriteJSON, "benchstat.txt": set.WriteBenchstat,
		"report.txt": func(w io.Writer) error { _, err := w.Write(text.Bytes()); return err },
	} {
		if err := create(filepath.Join(o.out, name), write); err != nil {
			return err
		}
	}
	if o.docs != "" {
		if err := page(o.docs, set); err != nil {
			return err
		}
	}
	if o.record != "" {
		if err := create(o.record, set.WriteRecord); err != nil {
			return err
		}
	}
	if o.compare != "" {
		return compare(os.Stdout, o.compare, set)
	}
	return nil
}

// page writes the documentation for all scenarios, including those not measured.
func page(dir string, set *table.Set) error {
	var sections []report.Section
	for _, s := range scenario.All() {
		sec := report.Section{Name: s.Name, Title: s.Title, Seed: s.Seed, About: s.About, Targets: s.Targets, Tables: extra(s, set)}
		if s.Figures != nil && len(set.Keys(s.Name)) > 0 {
			sec.Plots = s.Figures(set)
		}
		for _, p := range sec.Plots {
			if err := create(filepath.Join(dir, report.Pictures, p.FileName()+".svg"), func(w io.Writer) error { return report.WriteSVG(w, p) }); err != nil {
				return err
			}
		}
		sections = append(sections, sec)
	}
	return create(filepath.Join(dir, "benchmarks.md"), func(w io.Writer) error { return report.Markdown(w, set, sections, report.Reasons, report.Since) })
}

// compare lists the ratios that fell below the recorded ones.
func compare(w io.Writer, path string, set *table.Set) error {
	f, err := os.Open(path)
	if err != nil {
		return usageError{err}
	}
	defer f.Close()
	falls, compared, err := set.Compare(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, fall := range falls {
		fmt.Fprintf(w, "fell by %.0f %%: %s: %.2f of the host's, recorded %.2f\n", 100*(1-fall.Now/fall.Recorded), fall.Name, fall.Now, fall.Recorded)
	}
	switch {
	case compared == 0:
		return errors.New("nothing of this run is in " + path)
	case len(falls) > 0:
		return fmt.Errorf("%d of %d ratios fell by more than %.0f %%", len(falls), compared, 100*table.Tolerance)
	}
	fmt.Fprintf(w, "none of %d ratios fell by more than %.0f %%\n", compared, 100*table.Tolerance)
	return nil
}

// extra returns the scenario's own tables.
func extra(s scenario.Scenario, set *table.Set) []report.Table {
	if s.Tables == nil || len(set.Keys(s.Name)) == 0 {
		return nil
	}
	return s.Tables(set)
}

// create writes a file, and makes its directory if needed.
func create(path string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", path, err)
	}
	return f.Close()
}
