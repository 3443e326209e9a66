// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/ui/httpserve"
	"github.com/lklrun/lklrun/internal/ui/web"
)

// webRow is the JSON output of web. web prints it when the page can be opened.
type webRow struct {
	URL string `json:"url"` // address of the page, including the token
}

// Web returns the verb web.
func Web(c *verb.Call) *cobra.Command {
	var listen string
	var public bool
	cmd := &cobra.Command{
		Use:   "web [--listen PORT|ADDRESS:PORT] [--public]",
		Short: "serve the live view as a web page on loopback",
		Long: `web serves a page until Ctrl-C. It shows all instances and the wires between
them with live rates and, for each instance, graphs of its interfaces and
connections. Only someone who has its address, which contains a token, can open
it.`,
		Example: `  lklctl web
  lklctl -n web1 web --listen 8080
  lklctl web --listen 192.0.2.1:8080 --public`,
		Args: verb.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serveWeb(cmd.Context(), c, listen, public) },
	}
	c.Flags(cmd.Flags(), true)
	verb.ListenFlags(cmd.Flags(), &listen, httpserve.Loopback, &public)
	verb.Document(cmd, webRow{})
	return cmd
}

func serveWeb(ctx context.Context, c *verb.Call, listen string, public bool) error {
	if c.Name != "" {
		info, err := c.Choose()
		if err != nil {
			return err
		}
		c.Name = info.Name // which may be that of a pod
	}
	l, err := c.Listen(ctx, listen, public)
	if err != nil {
		return err
	}
	s := web.New(c.Place.List, func(ctx context.Context, name string) (*instance.Info, *stackconn.Conn, error) {
		return byName(ctx, c, name)
	})
	if err := announce(c, s.URL(l)); err != nil {
		return errors.Join(err, l.Close())
	}
	return s.Serve(ctx, l)
}

// announce prints the page's address.
func announce(c *verb.Call, page string) error {
	if c.Name != "" {
		page += "#" + url.PathEscape(c.Name)
	}
	if c.Output == cli.OutputJSON {
		return cli.WriteJSON(c.Stdout, webRow{page})
	}
	_, err := fmt.Fprintln(c.Stdout, page)
	return err
}

// byName is like Attach, for the instance of the given name.
func byName(ctx context.Context, c *verb.Call, name string) (*instance.Info, *stackconn.Conn, error) {
	one := *c
	one.Name = name
	return one.Attach(ctx)
}
