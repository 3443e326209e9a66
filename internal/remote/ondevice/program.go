// SPDX-License-Identifier: Apache-2.0

package ondevice

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/instance/ctlexec"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// attachLimit is the timeout for the greeting of a stack host.
const attachLimit = 10 * time.Second

// Program runs a program on the stack of the instance called name, with the
// standard descriptors of this process, and returns how the program ended. note
// tells the user which features do not work for the program.
func Program(ctx context.Context, name string, args []string, note func(format string, args ...any)) (exit.End, error) {
	info, err := instance.Place{}.Open(name)
	if err != nil {
		return exit.End{}, err
	}
	attaching, cancel := context.WithTimeout(ctx, attachLimit)
	conn, err := stackconn.Dial(attaching, info.Socket())
	cancel()
	if err != nil {
		return exit.End{}, fmt.Errorf("instance %q: %w", info.Name, err)
	}
	defer conn.Close()
	return ctlexec.Run(ctx, info, conn, args, [3]*os.File{os.Stdin, os.Stdout, os.Stderr}, note)
}
