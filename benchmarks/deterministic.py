"""The yardstick: an ordinary transformer layer of the same size, without latent noise, as one writes it in torch."""

import torch
from torch import nn
from torch.nn import functional as F


class PlainTransformer(nn.Module):
    """One layer, one head; with dropout for MC dropout (the paper's baseline)."""

    def __init__(self, d_model=32, d_ff=32, dropout=0.0):
        super().__init__()
        self.d_model = d_model
        self.embedding = nn.Linear(1, d_model)
        self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))
        self.attention_norm, self.output_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.feed_forward = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.projection = nn.Linear(d_model, 1)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x):
        """The mean of X_{t+1} for every t: (row, time, 1) to (row, time, 1)."""
        e = self.embedding(x)
        query, key, value = (project(e).unsqueeze(1) for project in (self.query, self.key, self.value))
        context = F.scaled_dot_product_attention(query, key, value, is_causal=True).squeeze(1)
        return self.read_out(self.dropout(self.output(context)), e)

    def read_out(self, z, e):
        hidden = self.attention_norm(z + e)
        return self.projection(self.output_norm(hidden + self.dropout(self.feed_forward(hidden))))

    @torch.no_grad()
    def sample_paths(self, history, horizon, n_paths, deviation=0.5):
        """Sampled futures with cached keys and values; all paths of a series share those of its history."""
        batch = len(history)
        e = self.embedding(history[:, :-1])
        past_keys, past_values = self.key(e), self.value(e)
        keys, values = (history.new_empty(batch, n_paths, horizon, self.d_model) for _ in range(2))
        last, paths = history[:, None, -1].expand(-1, n_paths, -1), []
        for step in range(horizon):
            e = self.embedding(last)
            query = self.query(e) / self.d_model**0.5
            keys[:, :, step], values[:, :, step] = self.key(e), self.value(e)
            own = slice(0, step + 1)
            own_scores = (keys[:, :, own] @ query.unsqueeze(-1)).squeeze(-1)
            shares = torch.cat((query @ past_keys.mT, own_scores), dim=-1).softmax(dim=-1)
            past, present = shares.split((past_keys.shape[1], step + 1), dim=-1)
            context = past @ past_values + (present.unsqueeze(-2) @ values[:, :, own]).squeeze(-2)
            last = self.read_out(self.output(context), e)
            last = last + deviation * torch.randn_like(last)
            paths.append(last)
        return torch.stack(paths, dim=2)
