// SPDX-License-Identifier: Apache-2.0

// Command http3 downloads over HTTP/3, with quic-go at both ends.
//
//	http3 serve ADDR PORT
//	http3 get ADDR PORT BYTES [NAME]
//
// The client prints the throughput from the request to the last byte. With NAME, it asks for this
// server name instead of ADDR.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/quic-go/quic-go/http3"
)

const limit = 60 * time.Second

func main() {
	log.SetFlags(0)
	log.SetPrefix("http3: ")
	args := os.Args[1:]
	var err error
	switch {
	case len(args) == 3 && args[0] == "serve":
		err = serve(net.JoinHostPort(args[1], args[2]))
	case (len(args) == 4 || len(args) == 5) && args[0] == "get":
		err = get(net.JoinHostPort(args[1], args[2]), args[3], strings.Join(args[4:], ""))
	default:
		log.Print("usage: http3 serve ADDR PORT | get ADDR PORT BYTES [NAME]")
		os.Exit(2)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// certificate makes a self-signed certificate.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// serve answers a request for /N with N bytes.
func serve(addr string) error {
	cert, err := certificate()
	if err != nil {
		return err
	}
	block := make([]byte, 64<<10)
	for i := range block {
		block[i] = byte(i * 31 >> 3)
	}
	server := http3.Server{
		Addr:      addr,
		TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := strconv.ParseInt(strings.TrimPrefix(r.URL.Path, "/"), 10, 64)
			if err != nil || n < 0 {
				http.Error(w, "expected /BYTES", http.StatusBadRequest)
				return
			}
			w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
			for n > 0 {
				m, err := w.Write(block[:min(n, int64(len(block)))])
				if err != nil {
					return // the client has left
				}
				n -= int64(m)
			}
		}),
	}
	return server.ListenAndServe()
}

// get downloads a number of bytes. An empty name means the one in addr.
func get(addr, size, name string) error {
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil || n <= 0 {
		return fmt.Errorf("%q: expected a number of bytes", size)
	}
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13} //nolint:gosec // the server's certificate is self-signed
	if name != "" {
		config.ServerName = name
	}
	if file := os.Getenv("SSLKEYLOGFILE"); file != "" {
		keys, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		defer keys.Close()
		config.KeyLogWriter = keys
	}
	transport := &http3.Transport{TLSClientConfig: config}
	defer func() { _ = transport.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+addr+"/"+size, nil)
	if err != nil {
		return err
	}
	began := time.Now()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.Copy(io.Discard, response.Body)
	if err != nil {
		return err
	}
	if got != n || response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s, %d bytes instead of %d", response.Status, got, n)
	}
	fmt.Printf("%.4f Gbit/s\n", float64(got)*8/1e9/time.Since(began).Seconds())
	return nil
}
