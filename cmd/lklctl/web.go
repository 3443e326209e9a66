// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/ui/httpserve"
	"github.com/lklrun/lklrun/internal/ui/web"
)

// webRow is the output of web with -o json once the page can be opened.
type webRow struct {
	URL string `json:"url"` // address of the page, with the token that it takes
}

func (c *ctl) webCommand() *cobra.Command {
	var listen string
	var public bool
	cmd := &cobra.Command{
		Use:   "web [--listen PORT|ADDRESS:PORT] [--public]",
		Short: "serve the live view as a web page on loopback",
		Long: `web serves one page that shows a running instance live: graphs of throughput,
RTT and congestion window of each subflow, the interfaces, the connections with
their subflows, and when a path went or came. It goes on until Ctrl-C, and shows
instances that start meanwhile too.

The address that it prints has a token in it, without which nothing is served:
other users of the machine reach loopback too. Whoever has the address sees
what the page shows, and can change nothing.`,
		Example: `  lklctl web
  lklctl -n web1 web --listen 8080
  lklctl web --listen 192.0.2.1:8080 --public`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.web(cmd.Context(), listen, public) },
	}
	c.flags(cmd.Flags(), true)
	listenFlags(cmd.Flags(), &listen, httpserve.Loopback, &public)
	document(cmd, webRow{})
	return cmd
}

func (c *ctl) web(ctx context.Context, listen string, public bool) error {
	if c.name != "" {
		if _, err := c.choose(); err != nil {
			return err
		}
	}
	l, err := c.listen(ctx, listen, public)
	if err != nil {
		return err
	}
	s := web.New(c.place.List, c.byName)
	if err := c.announce(s.URL(l)); err != nil {
		return errors.Join(err, l.Close())
	}
	return s.Serve(ctx, l)
}

// listen opens the listener for --listen and --public.
func (c *ctl) listen(ctx context.Context, at string, public bool) (net.Listener, error) {
	l, err := httpserve.Listener(ctx, "--listen", at, public)
	if err == nil && httpserve.IsPublic(l) {
		cli.Note(c.stderr, program, "warning: other machines are served, without encryption: whoever sees the address on its way can open it")
	}
	return l, err
}

// listenFlags adds the flags of verbs that serve other programs.
func listenFlags(f *pflag.FlagSet, listen *string, by string, public *bool) {
	f.StringVar(listen, "listen", by, "serve at a `PORT` of 127.0.0.1, or at ADDRESS:PORT; port 0: any that is free")
	f.BoolVar(public, "public", false, "--listen may name an address that other machines reach")
}

// announce prints the page's address.
func (c *ctl) announce(page string) error {
	if c.name != "" {
		page += "#" + url.PathEscape(c.name)
	}
	if c.output == cli.OutputJSON {
		return cli.WriteJSON(c.stdout, webRow{page})
	}
	_, err := fmt.Fprintln(c.stdout, page)
	return err
}

// byName is like attach, for an instance name.
func (c *ctl) byName(ctx context.Context, name string) (*instance.Info, *stackconn.Conn, error) {
	one := *c
	one.name = name
	return one.attach(ctx)
}
