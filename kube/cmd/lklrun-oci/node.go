// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os/signal"
	"path/filepath"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	daemon "github.com/lklrun/lklrun/kube/internal/node"
)

const (
	nodeVerb  = "node"
	serveFlag = "serve"
)

// node is the process of a DaemonSet's pod.
func node(ctx context.Context, args []string) (int, error) {
	f := pflag.NewFlagSet(nodeVerb, pflag.ContinueOnError)
	dir := f.String("dir", daemon.Dir, "install lklrun in this folder of the node")
	ready := f.Bool("ready", false, "only report whether containerd has accepted the plug-in")
	serve := f.String(serveFlag, "", "")
	f.SortFlags = false
	_ = f.MarkHidden(serveFlag)
	switch err := f.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return 0, nil
	case err != nil:
		return 0, exit.Usagef("%s: %w; see lklrun-oci %[1]s --help", nodeVerb, err)
	case f.NArg() > 0:
		return 0, exit.Usagef("%s: unexpected argument %q; see lklrun-oci %[1]s --help", nodeVerb, f.Arg(0))
	case !filepath.IsAbs(*dir):
		return 0, exit.Usagef("--dir %s: expected an absolute path", *dir)
	case *ready:
		return 0, daemon.Ready(*dir)
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
	defer stop()
	if *serve != "" {
		return 0, daemon.Serve(ctx, *serve)
	}
	return daemon.Run(ctx, filepath.Clean(*dir), []string{nodeVerb, "--" + serveFlag})
}
