// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"context"
	"net"

	"github.com/spf13/pflag"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/ui/httpserve"
)

// ListenFlags adds the flags of verbs that serve other programs.
func ListenFlags(f *pflag.FlagSet, listen *string, by string, public *bool) {
	f.StringVar(listen, "listen", by, "serve on this `PORT` of 127.0.0.1, or on ADDRESS:PORT; 0 means a free port")
	f.BoolVar(public, "public", false, "allow an address that other machines can reach")
}

// Listen opens the listener for --listen and --public.
func (c *Call) Listen(ctx context.Context, at string, public bool) (net.Listener, error) {
	l, err := httpserve.Listener(ctx, "--listen", at, public)
	if err == nil && httpserve.IsPublic(l) {
		cli.Note(c.Stderr, Program, "warning: other machines can connect, and nothing is encrypted; anyone who reads the traffic learns the token")
	}
	return l, err
}
