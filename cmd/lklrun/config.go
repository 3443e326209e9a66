// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/pkg/config"
)

// configVerb contains the flags of `lklrun config`.
type configVerb struct {
	sources
	explain, schema bool
	policySchema    bool
	check           string
	output          cli.Output
}

func configCommand() *cobra.Command {
	v := &configVerb{output: cli.OutputTable}
	cmd := &cobra.Command{
		Use:   "config [FLAG]... [--] [COMMAND [ARG]...]",
		Short: "show the settings of a run and their origin",
		Long: `config lists the settings of a run and where each value comes from. It runs and
changes nothing. "lklrun help configuration" lists the sources.`,
		Example: `  lklrun config --explain --profile mobile --if tap:tap0,ip=10.0.1.2/24
  lklrun config --check lab.json
  lklrun config --schema >config.schema.json`,
		Args:                  cobra.ArbitraryArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFlags(cmd.Flags()); err != nil {
				return err
			}
			return v.run(args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.SortFlags = false
	f.BoolVar(&v.explain, "explain", false, "list each setting and its source (the default)")
	f.BoolVar(&v.schema, "schema", false, "print the JSON Schema of configuration files")
	f.BoolVar(&v.policySchema, "egress-schema", false, "print the JSON Schema of policies (--egress)")
	f.StringVar(&v.check, "check", "", "report errors in `FILE`; print nothing if there are none")
	cli.OutputFlags(f, &v.output, "print the settings as a table or JSON")
	v.add(f)
	return cmd
}

func (v *configVerb) run(args []string) error {
	switch {
	case v.schema && v.policySchema, (v.schema || v.policySchema) && (v.explain || v.check != ""), v.explain && v.check != "":
		return cli.Usagef("--schema, --egress-schema, --check and --explain conflict; choose one")
	case v.policySchema:
		_, err := os.Stdout.Write(config.PolicySchema())
		return err
	case v.schema:
		_, err := os.Stdout.Write(config.Schema())
		return err
	case v.check != "":
		if v.file != "" || v.noFile {
			return cli.Usagef("--check %s: conflicts with --config and --no-config; remove them", v.check)
		}
		v.file = v.check
	}
	c, err := v.load(args)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	if v.check != "" {
		return nil
	}
	rows, err := explain(c)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	if v.output == cli.OutputJSON {
		return cli.WriteJSON(os.Stdout, rows)
	}
	t := cli.NewTable("SETTING", "VALUE", "FROM").Narrow()
	for _, r := range rows {
		from := r.From.String()
		if r.From.Kind == config.FromFile && r.From.Path != "" && r.From.Profile == "" {
			from += " (" + r.From.Path + ")"
		}
		t.Row(r.Setting, r.Value, from)
	}
	if err := t.Write(os.Stdout); err != nil {
		return err
	}
	for _, n := range c.Run.Notes {
		cli.Note(os.Stderr, self, "%s", n)
	}
	return nil
}

// explain lists the settings of a run, including the settings that its stack adds.
func explain(c *config.Config) ([]config.Value, error) {
	rows := c.Explain()
	s, err := stack.Find(c.Run.Stack, stack.SearchPath())
	if err != nil {
		return nil, located(c, errors.New("--stack: "+err.Error()))
	}
	if len(c.Run.Interfaces) == 0 && s.ABI != stack.ABIHost {
		rows = append(rows, config.Value{Setting: "interfaces[0]", Value: config.DefaultType, From: config.Origin{Kind: config.FromDefault}})
	}
	if c.Run.Mem == 0 && s.MemBytes() != 0 {
		rows = append(rows, config.Value{Setting: "mem", Value: config.FormatMem(s.MemBytes()), From: config.Origin{Kind: "stack", Where: "stack " + s.Name}})
	}
	known := map[string]bool{}
	for _, k := range c.Run.Sysctls {
		known[k.Name] = true
	}
	own := map[string]bool{}
	for _, k := range s.SortedSysctls() {
		own[k.Name] = true
	}
	for _, k := range plan.Sysctls(c.Run, s) {
		if known[k.Name] {
			continue
		}
		from := config.Origin{Kind: "memory", Where: "the stack's memory"}
		if own[k.Name] {
			from = config.Origin{Kind: "stack", Where: "stack " + s.Name}
		}
		rows = append(rows, config.Value{Setting: "sysctl " + k.Name, Value: k.Value, From: from})
	}
	return rows, nil
}

func profilesCommand() *cobra.Command {
	output := cli.OutputTable
	var src config.Sources
	cmd := &cobra.Command{
		Use:                   "profiles [FLAG]... [NAME]...",
		Short:                 "list profiles and their settings",
		Long:                  `profiles lists the profiles, which --profile applies, or the settings of NAME.`,
		Example:               "  lklrun profiles\n  lklrun profiles mobile\n  lklrun profiles --config lab.json -o json",
		DisableFlagsInUseLine: true,
		Args:                  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, names []string) error {
			src.Environ = os.Environ()
			all, err := src.LoadProfiles()
			if err != nil {
				return &cli.UsageError{Err: err}
			}
			for _, n := range names {
				if all[n] == nil {
					return cli.Usagef("profiles: no profile %q; `lklrun profiles` lists them", n)
				}
			}
			return writeProfiles(all, names, output)
		},
	}
	f := cmd.Flags()
	f.StringVar(&src.File, "config", "", "read this configuration `FILE` instead of the user's")
	f.BoolVar(&src.NoFile, "no-config", false, "do not read a configuration file")
	cli.OutputFlags(f, &output, "print a table or JSON")
	return cmd
}

// profileRow is a profile in the JSON output.
type profileRow struct {
	Name    string         `json:"name"`
	Summary string         `json:"summary"`
	Where   string         `json:"where,omitempty"` // absent: built in
	Values  []config.Value `json:"settings"`
}

func writeProfiles(all config.Profiles, names []string, output cli.Output) error {
	shown := names
	if len(names) == 0 {
		shown = all.Names()
	}
	if output == cli.OutputJSON {
		var rows []profileRow
		for _, n := range shown {
			rows = append(rows, profileRow{n, all[n].Summary, all[n].Where, all[n].Values()})
		}
		return cli.WriteJSON(os.Stdout, rows)
	}
	if len(names) == 0 {
		t := cli.NewTable("PROFILE", "FROM", "SUMMARY").Narrow()
		for _, n := range shown {
			where := all[n].Where
			if where == "" {
				where = "built in"
			}
			t.Row(n, where, all[n].Summary)
		}
		return t.Write(os.Stdout)
	}
	t := cli.NewTable("PROFILE", "SETTING", "VALUE").Narrow()
	for _, n := range shown {
		for _, v := range all[n].Values() {
			t.Row(n, v.Setting, v.Value)
		}
	}
	return t.Write(os.Stdout)
}
