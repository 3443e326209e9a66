// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/link/udp/keys"
	"github.com/lklrun/lklrun/internal/run/gateway"
	"github.com/lklrun/lklrun/pkg/config"
)

// maxPaths is the maximum number of paths of a client.
const maxPaths = config.MaxInterfaces

type gatewayFlags struct {
	listen, mtu, paths       int
	key, tun, newKey, client string
	net                      netip.Prefix
	noNAT, verbose           bool
}

func gatewayCommand() *cobra.Command {
	g := gatewayFlags{net: netip.MustParsePrefix("10.86.0.0/24")}
	network := g.net.String()
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "be the other end of --if udp on this host",
		Long: `gateway accepts the tunnels of --if udp:HOST:PORT, and passes their packets to a
tun device of this host, which masquerades them. It runs until a signal ends it,
and then removes everything. It requires root. Without root, a stack can be the
gateway: lklrun --if udp:PORT,key=DIR/gateway.conf -- COMMAND.

With --new-key, it creates the keys instead: DIR/gateway.conf for this host, and
one file for each path of a client. Key files are WireGuard configurations.`,
		Example: `  lklrun gateway --new-key keys --client phone --paths 2
  sudo lklrun gateway --listen 7400 --key keys/gateway.conf`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if g.net, err = netip.ParsePrefix(network); err != nil || !g.net.Addr().Is4() || g.net.Bits() > 29 {
				return cli.Usagef("--net %q; expected an IPv4 network with a prefix length of at most 29, such as 10.86.0.0/24", network)
			}
			if g.newKey != "" {
				return g.create(cmd)
			}
			return g.serve(cmd)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&g.listen, "listen", 0, "accept tunnels on this UDP `PORT`")
	f.StringVar(&g.key, "key", "", "the gateway's key `FILE`")
	f.StringVar(&g.tun, "tun", "lklgw0", "the `NAME` of the new tun device")
	f.IntVar(&g.mtu, "mtu", keys.DefaultMTU, "the MTU of the tunnels in `BYTES`")
	f.BoolVar(&g.noNAT, "no-nat", false, "neither forward nor masquerade the clients' packets")
	f.BoolVarP(&g.verbose, "verbose", "v", false, "report each step")
	f.StringVar(&g.newKey, "new-key", "", "create keys for a client in the directory `DIR`, and exit")
	f.StringVar(&g.client, "client", "client", "the `NAME` of the client, for its files")
	f.IntVar(&g.paths, "paths", 2, "the number `N` of the client's paths: one file for each")
	f.StringVar(&network, "net", network, "the IPv4 `NETWORK` in the tunnels of a new gateway")
	return cmd
}

func (g *gatewayFlags) create(cmd *cobra.Command) error {
	if cmd.Flags().Changed("listen") || cmd.Flags().Changed("key") {
		return cli.Usagef("--new-key: cannot be combined with --listen or --key; create the keys first")
	}
	if err := instance.CheckName(g.client); err != nil || g.client == strings.TrimSuffix(keys.GatewayFile, ".conf") {
		return cli.Usagef("--client %q; expected letters, digits, '-', '_' and '.', and a name other than gateway", g.client)
	}
	if g.paths < 1 || g.paths > maxPaths {
		return cli.Usagef("--paths %d; expected a number from 1 to %d", g.paths, maxPaths)
	}
	created, err := keys.Create(g.newKey, keys.Client{Name: g.client, Paths: g.paths, Net: g.net})
	for _, path := range created {
		fmt.Println(path)
	}
	if err != nil {
		return cli.Usagef("--new-key: %w", err)
	}
	return nil
}

func (g *gatewayFlags) serve(cmd *cobra.Command) error {
	switch {
	case g.listen == 0 || g.key == "":
		return cli.Usagef("gateway: expected --listen PORT and --key FILE, or --new-key DIR; see lklrun gateway --help")
	case g.listen < 1 || g.listen > 65535:
		return cli.Usagef("--listen %d; expected a port from 1 to 65535", g.listen)
	case g.mtu < config.MinMTU || g.mtu > config.MaxMTU:
		return cli.Usagef("--mtu %d; expected a number from %d to %d", g.mtu, config.MinMTU, config.MaxMTU)
	}
	if err := config.CheckDevice(g.tun); err != nil {
		return cli.Usagef("--tun: %w", err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	err := gateway.Run(ctx, gateway.Options{
		Port: uint16(g.listen), Key: g.key, Device: g.tun, MTU: g.mtu, NAT: !g.noNAT, Log: logger(g.verbose),
		Tell: func(line string) { cli.Note(os.Stderr, self, "%s", text.OneLine(line)) },
	})
	if err != nil {
		return errRun{err}
	}
	return nil
}
