// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/cgi"
	"strconv"
	"sync"
	"time"
)

// echo sends the data of each connection back, with a goroutine for each.
func echo(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println("listening on", l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c) // an error ends the connection, and the peer sees it
		}()
	}
}

// crowd opens n connections to an echo server. When all are open, it sends data over
// all of them at the same time and checks the echo.
func crowd(ctx context.Context, addr, number string) error {
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	conns := make([]net.Conn, n)
	errs := make(chan error, n)
	each := func(do func(i int) error) error {
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if err := do(i); err != nil {
					errs <- fmt.Errorf("connection %d: %w", i, err)
				}
			})
		}
		wg.Wait()
		select {
		case err := <-errs:
			return err
		default:
			return nil
		}
	}
	err = each(func(i int) (err error) {
		conns[i], err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		return err
	})
	if err != nil {
		return err
	}
	for range 3 {
		if err := each(func(i int) error { return talk(conns[i]) }); err != nil {
			return err
		}
	}
	fmt.Println(n)
	return each(func(i int) error { return conns[i].Close() })
}

// talk sends up to 16 KiB and expects the same data back.
func talk(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	sent := bytes.Repeat([]byte{byte(rand.Uint32())}, 1+rand.IntN(16<<10))
	if _, err := c.Write(sent); err != nil {
		return err
	}
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !bytes.Equal(got, sent) {
		return fmt.Errorf("what came back is not what was sent")
	}
	return nil
}

// serveCGI serves requests with a CGI program, one process per request.
func serveCGI(addr, program, root string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println("listening on", l.Addr())
	return http.Serve(l, &cgi.Handler{
		Path: program,
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=tester"},
	})
}
