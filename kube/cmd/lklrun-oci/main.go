// SPDX-License-Identifier: Apache-2.0

// Command lklrun-oci is an OCI runtime whose command line is that of crun and runc, a plug-in of
// containerd, and the process of a DaemonSet's pod that installs lklrun on a node.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/kube/internal/oci"
)

// pluginName is the name by which containerd starts its plug-ins, such as 50-lklrun.
var pluginName = regexp.MustCompile(`^[0-9]{2}-lklrun$`)

func main() {
	status, err := run(context.Background(), os.Args[0], os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", oci.Name, text.OneLine(err.Error()))
		status = exit.Status(err)
	}
	os.Exit(status)
}

func run(ctx context.Context, name string, args []string) (int, error) {
	var verb string
	if len(args) > 0 {
		verb = args[0]
	}
	switch {
	case verb == oci.HoldVerb:
		oci.Hold()
		return 0, nil
	case pluginName.MatchString(filepath.Base(name)):
		return 0, oci.Plugin(ctx)
	case verb == nodeVerb:
		return node(ctx, args[1:])
	}
	return oci.Run(ctx, args)
}
