// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"os/signal"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/run/node"
)

// nodeCommand is the process of a DaemonSet's pod.
func nodeCommand(end *exit.End) *cobra.Command {
	var (
		dir   string
		ready bool
		serve string
	)
	const verb, serveFlag = "node", "serve"
	cmd := &cobra.Command{
		Use:    verb,
		Short:  "install lklrun on a node of Kubernetes, and be a plug-in of its containerd",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !filepath.IsAbs(dir) {
				return cli.Usagef("--dir %s: expected an absolute path", dir)
			}
			if ready {
				return node.Ready(dir)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGTERM, unix.SIGINT)
			defer stop()
			if serve != "" {
				return node.Serve(ctx, serve)
			}
			status, err := node.Run(ctx, filepath.Clean(dir), []string{verb, "--" + serveFlag})
			*end = exit.End{Status: status}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "dir", node.Dir, "install lklrun in this folder of the node")
	f.BoolVar(&ready, "ready", false, "only report whether containerd has accepted the plug-in")
	f.StringVar(&serve, serveFlag, "", "")
	cobra.CheckErr(f.MarkHidden(serveFlag))
	return cmd
}
