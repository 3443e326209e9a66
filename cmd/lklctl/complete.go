// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// completeLimit bounds a shell's wait for a stack during completion.
const completeLimit = time.Second

// completeInstances completes -n with the names of running instances.
func (c *ctl) completeInstances(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, err := c.place.List()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	for _, i := range all {
		if i.Running {
			names = append(names, i.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completer returns the possible words for an argument. It may ignore the typed
// part.
type completer func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, toComplete string) []string

// complete completes arguments with answers from the selected instance. A shell
// shows no errors, so without an answer there are no completions.
func (c *ctl) complete(words completer) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), completeLimit)
		defer cancel()
		stderr := c.stderr
		c.stderr = io.Discard
		defer func() { c.stderr = stderr }()
		info, conn, err := c.attach(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer conn.Close()
		var fit []cobra.Completion
		for _, w := range words(ctx, info, conn, toComplete) {
			if strings.HasPrefix(w, toComplete) {
				fit = append(fit, w)
			}
		}
		return fit, cobra.ShellCompDirectiveNoFileComp
	}
}

// linkNames returns the interfaces of a stack.
func linkNames(ctx context.Context, _ *instance.Info, conn *stackconn.Conn, _ string) []string {
	links, err := stacknet.Links(ctx, conn)
	if err != nil {
		return nil
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Name)
	}
	return names
}
