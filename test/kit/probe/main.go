// SPDX-License-Identifier: Apache-2.0

// Command probe is a static Go program for the end-to-end tests: a client, a server and
// a resolver that a preloaded library cannot intercept.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

const limit = 20 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: probe get URL | serve ADDRESS | lookup NAME | udp ADDRESS TEXT | dial ADDRESS | echo ADDRESS | crowd ADDRESS N | cgi ADDRESS PROGRAM ROOT")
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	switch args[0] {
	case "get":
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[1], nil)
		if err != nil {
			return err
		}
		rep, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer rep.Body.Close()
		_, err = io.Copy(os.Stdout, rep.Body)
		return err
	case "serve":
		l, err := net.Listen("tcp", args[1])
		if err != nil {
			return err
		}
		fmt.Println("listening on", l.Addr())
		return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "hello %s from %s\n", strings.TrimPrefix(r.URL.Path, "/"), r.RemoteAddr)
		}))
	case "lookup":
		addrs, err := net.DefaultResolver.LookupHost(ctx, args[1])
		if err != nil {
			return err
		}
		fmt.Println(strings.Join(addrs, " "))
		return nil
	case "udp":
		c, err := net.Dial("udp", args[1])
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
			return err
		}
		if _, err := io.WriteString(c, args[2]); err != nil {
			return err
		}
		buf := make([]byte, 1<<16)
		n, err := c.Read(buf)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", buf[:n])
		return nil
	case "dial":
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", args[1])
		if err != nil {
			return err
		}
		fmt.Println("connected from", c.LocalAddr())
		return c.Close()
	case "echo":
		return echo(args[1])
	case "crowd":
		return crowd(ctx, args[1], args[2])
	case "cgi":
		return serveCGI(args[1], args[2], args[3])
	}
	return fmt.Errorf("no verb %q", args[0])
}
