// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/net/netutil"

	"github.com/lklrun/lklrun/internal/base/exit"
)

// Loopback is the default address. The kernel chooses the port.
const Loopback = "127.0.0.1:0"

// ParseListen parses an address to listen on: PORT on 127.0.0.1, or ADDRESS:PORT.
func ParseListen(text string) (netip.AddrPort, error) {
	if port, err := strconv.ParseUint(text, 10, 16); err == nil {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)), nil
	}
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return at, errors.New("expected PORT or ADDRESS:PORT, such as 8080 or 127.0.0.1:8080")
	}
	return at, nil
}

// Listener listens on the address in text, which is the value of flag. If other
// machines can reach the address, public must be set.
func Listener(ctx context.Context, flag, text string, public bool) (net.Listener, error) {
	at, err := ParseListen(text)
	if err != nil {
		return nil, exit.Usagef("%s %q; %w", flag, text, err)
	}
	if !at.Addr().IsLoopback() && !public {
		return nil, exit.Usagef("%s %s: other machines can reach this address, and the connection is not encrypted; add --public to allow this", flag, at)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, at, errors.Unwrap(err))
	}
	return l, nil
}

// IsPublic reports whether other machines can reach a listener.
func IsPublic(l net.Listener) bool { return !l.Addr().(*net.TCPAddr).IP.IsLoopback() }

// URL returns the URL of the server on a listener. If the server listens on all
// addresses, the URL contains the loopback address.
func (s *Server) URL(l net.Listener) string {
	at := l.Addr().(*net.TCPAddr).AddrPort()
	if at.Addr().IsUnspecified() {
		at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port())
	}
	return "http://" + at.String() + s.Path()
}

// Serve answers requests on l until ctx is done. It then stops all requests and
// returns nil.
func (s *Server) Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler:           s.Guard(h),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          log.New(io.Discard, "", 0), // mistakes of clients are not logged
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(netutil.LimitListener(l, maxConns)) }()
	select {
	case err := <-done:
		return fmt.Errorf("serving %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	// Streams end with ctx, which is the parent of their contexts. Other requests
	// have one second to finish.
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if server.Shutdown(late) != nil {
		_ = server.Close() // close the remaining connections without waiting
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", l.Addr(), err)
	}
	return nil
}
