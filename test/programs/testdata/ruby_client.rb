# SPDX-License-Identifier: Apache-2.0
#
# Posts from eight threads, with keep-alive. Argument: the server.

require "net/http"
require "digest/sha2"
Digest::SHA256.new
all = 8.times.map do |i|
  Thread.new do
    Net::HTTP.start(ARGV[0], 9292) do |http|
      25.times.count do |j|
        body = "#{i} #{j} " * 10000
        http.post("/", body).body == "POST " + Digest::SHA256.hexdigest(body)
      end
    end
  end
end
puts all.sum(&:value)
