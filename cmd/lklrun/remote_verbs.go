// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/remote"
	"github.com/lklrun/lklrun/internal/run/doctor"
)

// verbLimit is the timeout of a verb on a device. It does not include the upload of
// the bundle.
const verbLimit = time.Minute

// each calls do for every device that the command line names, in turn. It reports
// whether the command line names any device. With several devices, it returns the
// first error and prints the others.
func (d *deviceFlags) each(ctx context.Context, do func(context.Context, *remote.Ready) error) (done bool, err error) {
	targets, err := d.targets(ctx)
	if err != nil || len(targets) == 0 {
		return err != nil, err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	var first error
	for _, t := range targets {
		if err := on(ctx, t, do); err != nil {
			if len(targets) > 1 {
				cli.Note(os.Stderr, self, "%s", text.OneLine(err.Error()))
			}
			first = cmp.Or(first, err)
		}
	}
	return true, first
}

func on(ctx context.Context, t remote.Target, do func(context.Context, *remote.Ready) error) error {
	dev, err := remote.Open(ctx, t)
	if err != nil {
		return err
	}
	defer dev.Close()
	bar := &progress{}
	ready, err := remote.Prepare(ctx, dev, remote.Options{Progress: bar.show})
	bar.end()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, verbLimit)
	defer cancel()
	return do(ctx, ready)
}

// lines runs one of the device's verbs and returns its standard output. It prints
// the standard error with the device's name as a prefix.
func lines(ctx context.Context, r *remote.Ready, args ...string) (string, int, error) {
	var out, said remote.Head
	status, err := r.Run(ctx, remote.Command{Line: r.Command(args...), Stdout: &out, Stderr: &said})
	if err != nil {
		return "", 0, err
	}
	for line := range strings.Lines(said.String()) {
		cli.Note(os.Stderr, self, "%s: %s", r.Name(), strings.TrimPrefix(strings.TrimSpace(line), self+": "))
	}
	return out.String(), status, nil
}

// cleanup reverts the changes of killed runs on the devices. It removes the bundle
// from a device unless a program uses it.
func (d *deviceFlags) cleanup(ctx context.Context) (done bool, err error) {
	return d.each(ctx, func(ctx context.Context, r *remote.Ready) error {
		for _, verb := range [][]string{{"device", "cleanup"}, {"device", "remove"}} {
			out, status, err := lines(ctx, r, verb...)
			if err != nil {
				return err
			}
			for line := range strings.Lines(out) {
				fmt.Printf("%s: %s", r.Name(), text.Plain(line))
			}
			if status != 0 {
				return fmt.Errorf("%s: the cleanup is incomplete; see the messages above", r.Name())
			}
		}
		return nil
	})
}

// farReport is the report of doctor about a device.
type farReport struct {
	Device string       `json:"device"`
	Facts  remote.Facts `json:"facts"`
	*doctor.Report
}

// doctor prints the features of the devices, and whether the command can run
// there.
func (d *deviceFlags) doctor(ctx context.Context, args []string, output cli.Output) (done bool, err error) {
	var reports []farReport
	done, err = d.each(ctx, func(ctx context.Context, r *remote.Ready) error {
		out, _, err := lines(ctx, r, append([]string{"doctor", "--output=json"}, args...)...)
		if err != nil {
			return err
		}
		report := farReport{Device: r.Name(), Facts: r.Facts, Report: &doctor.Report{}}
		if err := json.Unmarshal([]byte(out), report.Report); err != nil {
			return fmt.Errorf("%s: lklrun doctor on the device printed no valid report", r.Name())
		}
		report.Host = append(findings(r), report.Host...)
		if output == cli.OutputJSON {
			reports = append(reports, report)
		} else {
			fmt.Printf("%s\n", r.Name())
			if err := writeReport(report.Report, output); err != nil {
				return err
			}
		}
		if !report.Runs {
			return fmt.Errorf("%s: the command cannot be run there: %s", r.Name(), report.Why)
		}
		return nil
	})
	if !done || output != cli.OutputJSON || len(reports) == 0 {
		return done, err
	}
	return true, errors.Join(cli.WriteJSON(os.Stdout, reports), err)
}

// findings returns the findings about a device that the desk itself has made.
func findings(r *remote.Ready) []doctor.Finding {
	f := r.Facts
	machine := f.Machine
	if f.ABI != "" {
		machine += fmt.Sprintf(", ABI %s, Android SDK %s", f.ABI, cmp.Or(f.SDK, "unknown"))
	}
	all := []doctor.Finding{{Subject: "machine", State: doctor.OK, Text: machine + ", uses the bundle for " + f.Arch}}
	add := func(subject string, state doctor.State, text string) {
		all = append(all, doctor.Finding{Subject: subject, State: state, Text: text})
	}
	switch {
	case f.Su != "":
		add("root", doctor.OK, "by `"+f.Su+"`")
	case f.UID == 0:
		add("root", doctor.OK, "the shell is root")
	default:
		add("root", doctor.Limited, fmt.Sprintf("none: the shell is uid %d, so --iface and --if raw, rawip and macvtap are unavailable", f.UID))
	}
	switch f.SELinux {
	case "":
		add("SELinux", doctor.Unneeded, "none, or its state is unknown")
	case "Enforcing":
		add("SELinux", doctor.Limited, "enforcing: its policy may deny operations of lklrun")
	default:
		add("SELinux", doctor.OK, strings.ToLower(f.SELinux))
	}
	free := "unknown"
	if f.Free >= 0 {
		free = fmt.Sprintf("%d MB", f.Free>>20)
	}
	add("space", doctor.OK, fmt.Sprintf("%s free in %s", free, f.Base))
	return all
}
