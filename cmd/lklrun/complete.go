// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/pkg/config"
)

// completeFlags adds shell completions to the flags of settings.
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

// completeProgram completes the command with the programs of $PATH, and its arguments
// with files.
func completeProgram(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || strings.Contains(word, "/") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var names []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		files, _ := os.ReadDir(dir) // offer nothing after an error
		for _, f := range files {
			if strings.HasPrefix(f.Name(), word) && unix.Access(filepath.Join(dir, f.Name()), unix.X_OK) == nil {
				names = append(names, f.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

func completeStack(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, _ := stack.List(stack.SearchPath()) // offer nothing after an error
	var names []string
	for _, s := range all {
		names = append(names, s.Name+"\t"+s.Summary)
	}
	return names, cobra.ShellCompDirectiveDefault
}

func completeProfile(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	src := config.Sources{Environ: os.Environ()}
	all, _ := src.LoadProfiles() // offer nothing after an error
	for _, n := range all.Names() {
		names = append(names, n+"\t"+all[n].Summary)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeSysctl completes names with the host kernel's settings below net. The
// stack is not running yet, but its settings are nearly the same.
func completeSysctl(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	var names []string
	root := os.DirFS("/proc/sys")
	_ = fs.WalkDir(root, "net", func(path string, d fs.DirEntry, err error) error {
		name := strings.ReplaceAll(path, "/", ".")
		switch {
		case err != nil:
			return fs.SkipDir // offer nothing after an error
		case d.IsDir() && !strings.HasPrefix(name, word) && !strings.HasPrefix(word, name):
			return fs.SkipDir
		case !d.IsDir() && strings.HasPrefix(name, word):
			names = append(names, name+"=")
		}
		return nil
	})
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
