"""A real S3 server, moto's, which checks signatures with botocore: it prints its address and a key, and serves.

It has the bucket `chats` and one user, who may do everything with it; the line is JSON with `url`, `key` and
`secret`. It exits when its standard input is closed.
"""

import json
import sys
import urllib.request

import boto3
from moto.server import ThreadedMotoServer

ALLOWED = {"Effect": "Allow", "Action": "s3:*", "Resource": ["arn:aws:s3:::chats", "arn:aws:s3:::chats/*"]}
POLICY = json.dumps({"Version": "2012-10-17", "Statement": [ALLOWED]})

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
url = "http://{}:{}".format(*server.get_host_and_port())
root = {"region_name": "us-east-1", "aws_access_key_id": "root", "aws_secret_access_key": "root", "endpoint_url": url}
boto3.client("s3", **root).create_bucket(Bucket="chats")
iam = boto3.client("iam", **root)
iam.create_user(UserName="headrace")
iam.put_user_policy(UserName="headrace", PolicyName="chats", PolicyDocument=POLICY)
key = iam.create_access_key(UserName="headrace")["AccessKey"]
# From here on every request needs a valid signature.
text = {"Content-Type": "text/plain"}
urllib.request.urlopen(urllib.request.Request(f"{url}/moto-api/reset-auth", b"0", text)).read()
print(json.dumps({"url": url, "key": key["AccessKeyId"], "secret": key["SecretAccessKey"]}), flush=True)
sys.stdin.read()
