// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/pkg/config"
)

// completeFlags gives the flags of settings what a shell offers for them.
func completeFlags(cmd *cobra.Command) {
	own := map[string]cobra.CompletionFunc{
		"stack": completeStack, "profile": completeProfile, "interfaces": cli.CompleteInterface, "sysctl": completeSysctl,
	}
	for _, s := range config.Settings() {
		complete, has := own[s.Key]
		switch {
		case s.Flag == "" || cmd.Flags().Lookup(s.Flag) == nil:
			continue
		case has:
		case len(s.Choices) > 0:
			complete = cobra.FixedCompletions(s.Choices, cobra.ShellCompDirectiveNoFileComp)
		case s.Flag == "log":
			continue // a file
		default:
			complete = cobra.NoFileCompletions
		}
		cobra.CheckErr(cmd.RegisterFlagCompletionFunc(s.Flag, complete))
	}
}

func completeStack(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, _ := stack.List(stack.SearchPath()) // what cannot be read is not offered
	var names []string
	for _, s := range all {
		names = append(names, s.Name+"\t"+s.Summary)
	}
	return names, cobra.ShellCompDirectiveDefault
}

func completeProfile(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	src := config.Sources{Environ: os.Environ()}
	all, _ := src.LoadProfiles() // what cannot be read is not offered
	for _, n := range all.Names() {
		names = append(names, n+"\t"+all[n].Summary)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeSysctl offers the names that the host's kernel has below net: nearly
// those of the stack's, which does not run yet.
func completeSysctl(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	var names []string
	root := os.DirFS("/proc/sys")
	_ = fs.WalkDir(root, "net", func(path string, d fs.DirEntry, err error) error {
		name := strings.ReplaceAll(path, "/", ".")
		switch {
		case err != nil:
			return fs.SkipDir // what cannot be read is not offered
		case d.IsDir() && !strings.HasPrefix(name, word) && !strings.HasPrefix(word, name):
			return fs.SkipDir
		case !d.IsDir() && strings.HasPrefix(name, word):
			names = append(names, name+"=")
		}
		return nil
	})
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
