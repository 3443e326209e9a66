// SPDX-License-Identifier: Apache-2.0

package adbd

import (
	"fmt"
	"io"
	"net"
	"strings"
)

// service returns the service for an OPEN. An error means that this device does not have
// the service. Like adbd, the server then answers with CLSE, as for a failed connection.
func (s *Server) service(name string) (func(*stream), error) {
	kind, rest, _ := strings.Cut(name, ":")
	kind, options, _ := strings.Cut(kind, ",")
	switch kind {
	case "sync":
		return serveSync, nil
	case "shell":
		return func(st *stream) { s.Shell.serve(st, strings.Split(options, ","), rest, s.Log) }, nil
	case "exec":
		return func(st *stream) { s.Shell.serve(st, []string{"raw"}, rest, s.Log) }, nil
	case "tcp", "localabstract", "localfilesystem":
		return dial(kind, rest)
	}
	return nil, fmt.Errorf("not there")
}

// dial connects to a socket of the device, for adb forward.
func dial(kind, where string) (func(*stream), error) {
	network, address := "unix", where
	switch kind {
	case "tcp":
		network, address = "tcp", "127.0.0.1:"+where
	case "localabstract":
		address = "@" + where
	}
	conn, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return func(s *stream) {
		// As in adbd, the end of either side ends both, because the transport cannot
		// close one direction only.
		go func() {
			_, _ = io.Copy(conn, s) // until either side ends
			conn.Close()
		}()
		_, _ = io.Copy(s, conn) // until either side ends
		conn.Close()
	}, nil
}
