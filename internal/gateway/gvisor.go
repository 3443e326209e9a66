// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync/atomic"

	"github.com/containers/gvisor-tap-vsock/pkg/types"
	"github.com/containers/gvisor-tap-vsock/pkg/virtualnetwork"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// Available says that this lklrun has the gateway.
const Available = true

// mac is the gateway's own Ethernet address, a locally administered one.
const mac = "02:6c:6b:6c:00:01"

// bufferSize holds some of the largest frames each way. Beyond the host's
// limits (net.core.wmem_max) it is cut down without an error.
const bufferSize = 4 << 20

// Gateway is a running gateway.
type Gateway struct {
	conn net.Conn
	done chan struct{}
}

// Start runs a gateway until Close, and returns the stack's end of its link: a
// socket with a frame a message.
func Start(ctx context.Context, cfg Config, log *slog.Logger) (*Gateway, *os.File, error) {
	quiet(log)
	vn, err := virtualnetwork.New(&types.Configuration{
		MTU:               cfg.MTU,
		Subnet:            cfg.Address.Masked().String(),
		GatewayIP:         cfg.Gateway.String(),
		GatewayMacAddress: mac,
		NAT:               map[string]string{cfg.Host.String(): "127.0.0.1"},
		GatewayVirtualIPs: []string{cfg.Host.String()},
		Ec2MetadataAccess: true, // what the user's host reaches, the target does
		Protocol:          types.BessProtocol,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("starting the user-mode gateway: %w", err)
	}
	conn, end, err := pair()
	if err != nil {
		return nil, nil, fmt.Errorf("starting the user-mode gateway: %w", err)
	}
	g := &Gateway{conn: conn, done: make(chan struct{})}
	go func() {
		defer close(g.done)
		_ = vn.AcceptBess(ctx, conn) // ends with an error whenever the link does
	}()
	return g, end, nil
}

// Close ends the gateway's link.
func (g *Gateway) Close() {
	g.conn.Close()
	<-g.done
}

// pair makes the link: our end as a connection, the other as a descriptor.
func pair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making its link: %w", err)
	}
	for _, fd := range fds {
		for force, opt := range map[int]int{unix.SO_SNDBUFFORCE: unix.SO_SNDBUF, unix.SO_RCVBUFFORCE: unix.SO_RCVBUF} {
			if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, bufferSize) != nil {
				_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt, bufferSize)
			}
		}
	}
	ours := os.NewFile(uintptr(fds[0]), "gateway")
	defer ours.Close()
	end := os.NewFile(uintptr(fds[1]), "gateway link")
	conn, err := net.FileConn(ours)
	if err != nil {
		end.Close()
		return nil, nil, fmt.Errorf("making its link: %w", err)
	}
	return conn, end, nil
}

var quieted atomic.Bool

// quiet leads the library's own log, which is logrus' global one, to ours.
func quiet(log *slog.Logger) {
	if quieted.Swap(true) {
		return
	}
	logrus.SetOutput(io.Discard)
	logrus.SetLevel(logrus.ErrorLevel)
	logrus.AddHook(hook{log})
}

type hook struct{ log *slog.Logger }

func (hook) Levels() []logrus.Level { return logrus.AllLevels }

func (h hook) Fire(e *logrus.Entry) error {
	h.log.Debug("gateway", "message", e.Message)
	return nil
}
