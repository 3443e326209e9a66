// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stackconn"
	"github.com/lklrun/lklrun/internal/web"
)

// webRow is what web says with -o json once the page can be opened.
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
	cmd.Flags().StringVar(&listen, "listen", web.Loopback, "a `PORT` of 127.0.0.1, or ADDRESS:PORT; port 0: any that is free")
	cmd.Flags().BoolVar(&public, "public", false, "--listen may name an address that other machines reach")
	document(cmd, webRow{})
	return cmd
}

func (c *ctl) web(ctx context.Context, listen string, public bool) error {
	at, err := web.ParseListen(listen)
	if err != nil {
		return cli.Usagef("--listen %q: %w", listen, err)
	}
	if !at.Addr().IsLoopback() {
		if !public {
			return cli.Usagef("--listen %s: other machines reach that address, and what they are sent is not encrypted; add --public if that is meant", at)
		}
		cli.Note(c.stderr, program, "warning: the page is served to other machines, without encryption: whoever sees the address on its way can open it")
	}
	if c.name != "" {
		if _, err := c.choose(); err != nil {
			return err
		}
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", at.String())
	if err != nil {
		return fmt.Errorf("--listen %s: %w", at, errors.Unwrap(err))
	}
	s := web.New(c.place.List, c.byName)
	if err := c.announce(s.URL(l)); err != nil {
		return errors.Join(err, l.Close())
	}
	return s.Serve(ctx, l)
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

// byName is attach for a name.
func (c *ctl) byName(ctx context.Context, name string) (*instance.Info, *stackconn.Conn, error) {
	one := *c
	one.name = name
	return one.attach(ctx)
}
