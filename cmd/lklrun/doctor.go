// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/run/doctor"
	"github.com/lklrun/lklrun/internal/run/preflight"
	"github.com/lklrun/lklrun/internal/run/stackhost"
	"github.com/lklrun/lklrun/internal/stack"
)

func doctorCommand() *cobra.Command {
	output, stackName := cli.OutputTable, stack.Default
	var devices deviceFlags
	cmd := &cobra.Command{
		Use:   "doctor [FLAG]... [COMMAND [ARG]...]",
		Short: "check whether a command can run here",
		Long: `doctor reports what this host supports, and whether and how COMMAND can run. It
runs and changes nothing.`,
		Example: `  lklrun doctor
  lklrun doctor ssh
  lklrun doctor -o json ./my-server`,
		ValidArgsFunction:     completeProgram,
		Args:                  cobra.ArbitraryArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if done, err := devices.doctor(cmd.Context(), append([]string{"--stack=" + stackName, "--"}, args...), output); done {
				return err
			}
			s, err := stack.Find(stackName, stack.SearchPath())
			if err != nil {
				return cli.Usagef("--stack: %w", err)
			}
			all, _ := stack.List(stack.SearchPath()) // `lklrun stack list` reports unreadable stacks
			q := doctor.Question{Stack: s, Stacks: all, FindHost: stackhost.Find, FindPreload: findPreload,
				LookNotification: preflight.LookNotification, CheckFilter: preflight.CheckFilter, CheckTrace: preflight.CheckTrace, MakeNamespaces: preflight.MakeNamespaces}
			if len(args) > 0 {
				if q.Command = args[0]; q.Command == "" {
					return cli.Usagef("doctor: the COMMAND is empty; give a program")
				}
			}
			r := doctor.Examine(cmd.Context(), q)
			if err := writeReport(r, output); err != nil {
				return err
			}
			if !r.Runs {
				if q.Command == "" {
					return fmt.Errorf("no program can be run here: %s", r.Why)
				}
				return fmt.Errorf("%s cannot be run: %s", q.Command, r.Why)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&stackName, "stack", stackName, "check for the stack `NAME`, or the stack in this folder")
	cli.OutputFlags(f, &output, "print a table or JSON")
	devices.add(f, "check this `DEVICE`, after uploading lklrun to it")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("stack", completeStack))
	return cmd
}

func writeReport(r *doctor.Report, output cli.Output) error {
	if output == cli.OutputJSON {
		return cli.WriteJSON(os.Stdout, r)
	}
	t := cli.NewTable("WHAT", "STATE", "FOUND").Narrow()
	for _, f := range append(r.Host, r.Command...) {
		t.Row(f.Subject, string(f.State), f.Text)
	}
	for _, c := range r.Engines {
		state := doctor.OK
		if !c.Runs {
			state = doctor.Limited
		}
		t.Row("engine "+c.Engine, string(state), c.Why)
	}
	if r.Runs {
		t.Row("engine", string(doctor.OK), r.Engine+": "+r.Why)
	} else {
		t.Row("engine", string(doctor.No), "none: "+r.Why)
	}
	return t.Write(os.Stdout)
}

func findPreload(library string) (string, error) {
	host, err := stackhost.Find()
	if err != nil {
		return "", err
	}
	return stackhost.FindPreload(host, library)
}
